package scenarios

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

var (
	seedNumbers = []string{"000", "001", "002", "003", "004"}
	crashPoints = []string{string(CrashBefore), string(CrashAfter)}
)

// What failAPI can be about.
var (
	apiVerbs = []string{"get", "list", "create", "update", "patch", "delete"}
	apiCodes = []int{403, 404, 409, 429, 500}
)

// parts are those that a controller can play.
var parts = []string{"power", "remediation", "healthcheck", "fencer", "deletion"}

// maxReplicas bounds the processes of a controller.
const maxReplicas = 3

// Grammars of names. Kubernetes sets those of labels and annotations; a host is
// a Node and so has a name out of DNS.
const (
	maxUnhealthyPattern  = `^([0-9]{1,4}|[0-9]{1,2}%|100%)$`
	numberRangePattern   = `^\[([0-9]{1,4})-([0-9]{1,4})\]$`
	dnsLabelPattern      = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	upstreamPattern      = `^[A-Za-z0-9][-A-Za-z0-9]*/[-A-Za-z0-9_.]+#[1-9][0-9]*$`
	qualifiedNamePattern = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelValuePattern    = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
)

var (
	maxUnhealthy  = regexp.MustCompile(maxUnhealthyPattern)
	numberRange   = regexp.MustCompile(numberRangePattern)
	dnsLabel      = regexp.MustCompile(dnsLabelPattern)
	upstreamRef   = regexp.MustCompile(upstreamPattern)
	qualifiedName = regexp.MustCompile(qualifiedNamePattern)
	labelValue    = regexp.MustCompile(labelValuePattern)
	digest        = regexp.MustCompile(`^[0-9a-f]{16}$`)
	deviationStep = regexp.MustCompile(`^[^/\s]+(/[^/\s]+)+/[1-9][0-9]{0,8}$`)
)

// eventKinds are the events that a step can wait for. What the engine records
// itself is not among them: a step follows the one before it anyway.
func eventKinds() []string {
	var kinds []string
	for _, layer := range [...]history.Layer{history.World, history.API, history.BMC, history.Controller} {
		for _, kind := range history.Kinds(layer) {
			kinds = append(kinds, string(kind))
		}
	}
	return kinds
}

func invariantIDs() []string {
	var ids []string
	for _, inv := range invariant.All() {
		ids = append(ids, inv.ID)
	}
	return ids
}

// validator finds what the types don't show: names of nothing, and operations
// that make no sense where they are. It speaks of fields that the file has and
// of which nothing worse was said.
type validator struct {
	doc   *document
	vocab Vocabulary
	spec  *Spec
	// hosts and controllers are the names of those that take part. nil: their
	// definitions are broken, so that nothing can be said about references.
	hosts, controllers []string
	// nodes and machines are the names of the hosts' Nodes and Machines.
	nodes, machines []string
	invariants      []string
	// faults are the names of the faults that were added so far; ended of those
	// that were removed again.
	faults, ended []string
	// seconds are the processes that earlier steps have started beside another one.
	seconds []string
	// open are the states that earlier steps have begun: "worker-1 is cut off".
	open []string
	// lasting are those of them that steps have begun for good.
	lasting []string
	// unsure says that a step is broken, so that nothing can be said about what
	// earlier steps have done.
	unsure bool
}

func newValidator(doc *document, vocab Vocabulary, spec *Spec) *validator {
	v := &validator{
		doc: doc, vocab: vocab, spec: spec, invariants: invariantIDs(),
		unsure: doc.broken("spec.steps"),
	}
	if !doc.broken("spec.topology.hosts") {
		v.hosts = []string{}
		for _, host := range spec.Topology.Hosts {
			if host.Name != "" && !slices.Contains(v.hosts, host.Name) {
				v.hosts = append(v.hosts, host.Name)
			}
			if host.Node() != "" {
				v.nodes = append(v.nodes, host.Node())
			}
			if host.Machine() != "" {
				v.machines = append(v.machines, host.Machine())
			}
		}
	}
	if !doc.broken("spec.controllers") {
		v.controllers = []string{}
		for _, c := range spec.Controllers {
			if vocab.Controllers[c.Name].EveryHost || c.Pods != nil {
				for _, host := range v.hosts {
					v.controllers = append(v.controllers, ProcessOn(c.Name, host))
				}
				continue
			}
			for n := 1; n <= min(max(c.Replicas, 1), maxReplicas); n++ {
				v.controllers = append(v.controllers, Process(c.Name, n))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(vocab.Controllers)) {
			if name == workloadController && spec.Topology.Workload.Host == "" && !doc.broken("spec.topology.workload") {
				continue // there is nothing for it to do, so it doesn't run
			}
			if vocab.Controllers[name].StandIn && !slices.Contains(v.controllers, name) {
				v.controllers = append(v.controllers, name)
			}
		}
	}
	return v
}

func (v *validator) bad(path, format string, args ...any) {
	if v.doc.nodes[path] != nil && !v.doc.broken(path) {
		v.doc.bad(path, format, args...)
	}
}

// oneOf reports a name that isn't among the valid ones.
func (v *validator) oneOf(path, what, name string, valid []string) bool {
	if slices.Contains(valid, name) {
		return true
	}
	if v.doc.nodes[path] != nil {
		v.bad(path, "%s", unknown(what, name, valid))
	}
	return false
}

func (v *validator) host(path, name string) {
	if v.hosts != nil && v.doc.nodes[path] != nil && !v.oneOf(path, "host", name, v.hosts) {
		v.unsure = true
	}
}

// named checks the name of an object of a kind.
func (v *validator) named(path, kind, name string) {
	switch v.vocab.kind(kind).Named {
	case Freely:
		if !dnsLabel.MatchString(name) {
			v.bad(path, "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(name))
		}
	case AfterHost:
		v.host(path, name)
	case AfterNode:
		v.ofHost(path, kind, name, v.nodes)
	case AfterMachine:
		v.ofHost(path, kind, name, v.machines)
	case AfterCluster:
		if v.spec.HealthCheck == nil && !v.doc.broken("spec.healthCheck") {
			v.bad(path, "there is none, because spec has no healthCheck")
		}
		v.oneOf(path, kind, name, []string{ClusterName})
	}
}

// ofHost checks the name of an object that each host has.
func (v *validator) ofHost(path, kind, name string, valid []string) {
	if v.hosts != nil && v.doc.nodes[path] != nil && !v.oneOf(path, kind, name, valid) {
		v.unsure = true
	}
}

// object checks what an operation names, whose kind must have something.
func (v *validator) object(path, object string, has func(*Kind) bool) (kind string) {
	kinds := v.vocab.kinds(has)
	kind, name, named := strings.Cut(object, "/")
	switch {
	case !named:
		v.bad(path, "%s does not name an object: write KIND/NAME with one of %s", phrase.Quote(object), strings.Join(kinds, ", "))
	case v.oneOf(path, "kind", kind, kinds):
		v.named(path, kind, name)
		return kind
	}
	return ""
}

// selection checks what an operation of a user is done to, whose kind must have
// something.
func (v *validator) selection(path string, s Selection, has func(*Kind) bool) (kind string) {
	named := v.doc.nodes[path+".object"] != nil
	ofKind, labelled := v.doc.nodes[path+".kind"] != nil, v.doc.nodes[path+".labels"] != nil
	switch {
	case named && !ofKind && !labelled:
		return v.object(path+".object", s.Object, has)
	case named || !ofKind || !labelled:
		v.bad(path, "does not say which objects: give it object, or kind and labels")
		return ""
	}
	v.labels(path+".labels", s.Labels)
	if !v.oneOf(path+".kind", "kind", s.Kind, v.vocab.kinds(has)) {
		return ""
	}
	return s.Kind
}

func (v *validator) labels(path string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !qualifiedName.MatchString(key) || !labelValue.MatchString(labels[key]) {
			v.bad(join(path, key), "%s=%s is not a label that Kubernetes accepts", phrase.Quote(key), phrase.Quote(labels[key]))
		}
	}
}

func (v *validator) controller(path, name string) {
	_, exists := v.vocab.Controllers[v.base(name)]
	switch {
	case v.controllers == nil || slices.Contains(v.controllers, name):
	case name == workloadController:
		v.bad(path, "the controller %s does not run: spec.topology has no workload", name)
	case exists && v.vocab.Controllers[name].EveryHost && slices.ContainsFunc(v.controllers, func(p string) bool { return v.onHost(p) && v.base(p) == name }):
		v.bad(path, "the controller %s runs on every host: name one of its processes, such as %s", name, ProcessOn(name, v.hosts[0]))
	case exists:
		v.bad(path, "the controller %s does not run: add it to spec.controllers, or start it in an earlier step", name)
	default:
		v.oneOf(path, "controller", name, v.controllers)
	}
}

// base is the controller that a process is of.
func (v *validator) base(process string) string {
	if _, name, ok := strings.Cut(process, "."); ok {
		return name
	}
	for name := range v.vocab.Controllers { // order does not matter: one at most has it
		for n := 2; n <= maxReplicas; n++ {
			if process == Process(name, n) {
				return name
			}
		}
	}
	return process
}

// onHost reports whether a process is one of those that run on hosts.
func (v *validator) onHost(process string) bool { return strings.Contains(process, ".") }

// distinct reports names that are there twice.
func (v *validator) distinct(names []string, path func(i int) string) {
	for i, name := range names {
		if first := slices.Index(names, name); first < i {
			v.bad(path(i), "%s is listed twice, first in %s", phrase.Quote(name), path(first))
		}
	}
}

func (v *validator) metadata(m *Metadata, name *regexp.Regexp) {
	if !name.MatchString(m.Name) {
		v.bad("metadata.name", "%s is not a valid name: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(m.Name))
	}
	if strings.TrimSpace(m.Description) == "" {
		v.bad("metadata.description", "is empty: say in a sentence what happens and what it shows")
	}
	seed := func(i int) string { return fmt.Sprintf("metadata.seeds[%d]", i) }
	for i, number := range m.Seeds {
		v.oneOf(seed(i), "seed", number, seedNumbers)
	}
	v.distinct(m.Seeds, seed)
	label := func(i int) string { return fmt.Sprintf("metadata.labels[%d]", i) }
	for i, word := range m.Labels {
		if !dnsLabel.MatchString(word) {
			v.bad(label(i), "%s is not a valid label: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(word))
		}
	}
	v.distinct(m.Labels, label)
	if !upstreamRef.MatchString(m.Upstream) {
		v.bad("metadata.upstream", "%s does not name a thread: write owner/repository#number", phrase.Quote(m.Upstream))
	}
}

func (v *validator) validate() {
	v.topology()
	v.healthCheck()
	v.controllerList()
	for i := range v.spec.Steps {
		v.step(i)
	}
	v.judgement()
	v.tellable()
}

func (v *validator) topology() {
	path := func(i int) string { return fmt.Sprintf("spec.topology.hosts[%d].name", i) }
	hosts := v.spec.Topology.Hosts
	if v.spec.Topology.Workers != nil {
		v.bad(workersPath, "a plan lists its hosts one by one: write them out")
	}
	if len(hosts) == 0 {
		v.bad("spec.topology.hosts", "is empty: a scenario needs at least one host")
	}
	names, nodes, machines := make([]string, len(hosts)), make([]string, len(hosts)), make([]string, len(hosts))
	for i, host := range hosts {
		names[i], nodes[i], machines[i] = host.Name, host.Node(), host.Machine()
		at := fmt.Sprintf("spec.topology.hosts[%d]", i)
		if !dnsLabel.MatchString(host.Name) {
			v.bad(path(i), "%s is not a valid host name: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.Name))
		}
		if !dnsLabel.MatchString(host.Node()) {
			v.bad(at+".nodeName", "%s is not a valid Node name here: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.NodeName))
		}
		if !dnsLabel.MatchString(host.Machine()) {
			v.bad(at+".machineName", "%s is not a valid Machine name here: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.MachineName))
		}
		v.labels(at+".labels", host.Labels)
		if !dnsLabel.MatchString(host.Domain) {
			v.bad(at+".domain", "%s is not a valid name of a failure domain: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.Domain))
		}
		if len(v.vocab.PowerRestores) > 0 {
			v.oneOf(at+".powerRestore", "policy", host.PowerRestore, v.vocab.PowerRestores)
		}
	}
	v.distinct(names, path)
	given := func(field string, name func(*Host) string) func(int) string {
		return func(i int) string {
			if name(&hosts[i]) == "" {
				return path(i)
			}
			return fmt.Sprintf("spec.topology.hosts[%d].%s", i, field)
		}
	}
	v.distinct(nodes, given("nodeName", func(h *Host) string { return h.NodeName }))
	v.distinct(machines, given("machineName", func(h *Host) string { return h.MachineName }))
	v.host("spec.topology.workload.host", v.spec.Topology.Workload.Host)
	v.stops("spec.topology.workload.stops", v.spec.Topology.Workload.Stops)
	v.atLeast("spec.topology.lease", v.spec.Topology.Lease, 100*time.Millisecond)
	v.ironicTimes("spec.topology.ironic", v.spec.Topology.Ironic)
	v.bmc("spec.topology.bmc", v.spec.Topology.BMC)
	if path := ownBMCs(v.spec); path != "" && v.spec.Topology.BMC != nil {
		v.bad(path, "only fencelab's own BMCs can do this: leave it out, or spec.topology.bmc")
	}
	v.atLeast("spec.limits.step", v.spec.Limits.Step, 100*time.Millisecond)
	v.atLeast("spec.limits.settle", v.spec.Limits.Settle, 100*time.Millisecond)
}

// atLeast reports a time that is too short for anything to happen in it.
func (v *validator) atLeast(path string, d Duration, least time.Duration) {
	if d != 0 && time.Duration(d) < least {
		v.bad(path, "%s is too short: use at least %s", time.Duration(d), least)
	}
}

// ironicTimes checks the times of an Ironic, if there is one.
func (v *validator) ironicTimes(at string, ironic *Ironic) {
	if ironic != nil {
		v.wholeSeconds(at+".syncInterval", ironic.SyncInterval, time.Second)
		v.wholeSeconds(at+".powerTimeout", ironic.PowerTimeout, 2*time.Second)
	}
}

// wholeSeconds is for times of programs that take no others.
func (v *validator) wholeSeconds(path string, d Duration, least time.Duration) {
	if t := time.Duration(d); t != 0 && (t < least || t%time.Second != 0) {
		v.bad(path, "%s: use whole seconds, at least %s", t, least)
	}
}

// healthCheckController is the controller that acts on spec.healthCheck, and
// workloadController the stand-in that takes part when there is a workload.
const (
	healthCheckController = "healthcheck"
	workloadController    = "workload"
)

func (v *validator) healthCheck() {
	check := v.spec.HealthCheck
	if check == nil {
		return
	}
	const path = "spec.healthCheck"
	for _, timeout := range [...]struct {
		name  string
		value Duration
	}{{"unhealthyAfter", check.UnhealthyAfter}, {"nodeStartupTimeout", check.NodeStartupTimeout}} {
		if d := time.Duration(timeout.value); d <= 0 || d%time.Second != 0 {
			v.bad(join(path, timeout.name), "%s: use whole seconds, at least one", d)
		}
	}
	if !maxUnhealthy.MatchString(check.MaxUnhealthy) {
		v.bad(path+".maxUnhealthy", "%s is neither a number of Machines nor a percentage such as 40%%", phrase.Quote(check.MaxUnhealthy))
	}
	if check.UnhealthyRange != "" {
		switch least, most := check.ActsOn(0); {
		case !numberRange.MatchString(check.UnhealthyRange):
			v.bad(path+".unhealthyRange", `%s is not a range of numbers of Machines such as "[2-3]"`, phrase.Quote(check.UnhealthyRange))
		case least > most:
			v.bad(path+".unhealthyRange", "%s is an empty range: its first number is greater than its second", phrase.Quote(check.UnhealthyRange))
		}
	}
	acts := func(c Controller) bool {
		c.Plays = cmp.Or(c.Plays, v.vocab.Controllers[c.Name].Plays)
		return partOf(&c) == healthCheckController
	}
	if v.controllers != nil && !slices.ContainsFunc(v.spec.Controllers, acts) {
		v.doc.bad(path, "no controller acts on it: add %s to spec.controllers", healthCheckController)
	}
}

func (v *validator) controllerList() {
	known := slices.Sorted(maps.Keys(v.vocab.Controllers))
	path := func(i int) string { return fmt.Sprintf("spec.controllers[%d].name", i) }
	var names []string
	for i := range v.spec.Controllers {
		c := &v.spec.Controllers[i]
		names = append(names, c.Name)
		at := fmt.Sprintf("spec.controllers[%d]", i)
		if c.Pods != nil {
			v.pods(at, c)
			continue
		}
		if c.Program != nil {
			v.program(at, c)
			continue
		}
		if v.doc.broken(path(i)) || !v.oneOf(path(i), "controller", c.Name, known) {
			continue
		}
		vocab := v.vocab.Controllers[c.Name]
		if vocab.EveryHost && c.Replicas != 0 {
			v.bad(at+".replicas", "the controller %s runs once on every host: leave this out", c.Name)
		} else if c.Replicas < 2 || c.Replicas > maxReplicas {
			v.bad(at+".replicas", "%d: use 2 or %d, or leave it out", c.Replicas, maxReplicas)
		}
		if vocab.EveryHost {
			v.bad(at+".rateLimit", "the controller %s runs on every host, and its settings determine how often it sends requests: leave this out", c.Name)
		}
		if c.RateLimit != nil && c.RateLimit.Every <= 0 {
			v.bad(at+".rateLimit.every", "%s: use a positive duration, such as 200ms", time.Duration(c.RateLimit.Every))
		}
		if c.RateLimit != nil && c.RateLimit.Burst < 1 {
			v.bad(at+".rateLimit.burst", "%d: use at least 1, or the client can never send a request", c.RateLimit.Burst)
		}
		if c.Plays != "" {
			v.oneOf(at+".plays", "part", c.Plays, parts)
		}
		if len(c.Also) > 0 {
			v.bad(at+".also", "only a program plays several parts")
		}
		if vocab.Settings == nil {
			v.bad(at+".settings", "the controller %s has no settings", c.Name)
		} else if settings := vocab.Settings(); v.doc.decodeForeign(at+".settings", settings) {
			v.ask(at+".settings", settings)
		}
		if len(vocab.Actions) == 0 {
			v.bad(at+".overlay", "the controller %s takes no overlay", c.Name)
		}
		for j, rule := range c.Overlay {
			v.overlay(fmt.Sprintf("%s.overlay[%d]", at, j), rule, vocab)
		}
	}
	v.distinct(names, path)
}

// ask reports what a value of another package finds wrong with itself.
func (v *validator) ask(path string, value any) {
	if value, ok := value.(interface{ Validate() error }); ok {
		if err := value.Validate(); err != nil {
			v.bad(path, "%s", phrase.OneLine(err))
		}
	}
}

func (v *validator) overlay(path string, rule Rule, vocab ControllerVocabulary) {
	ok := v.oneOf(path+".then", "action", rule.Then, vocab.Actions)
	for _, fact := range slices.Sorted(maps.Keys(rule.When)) {
		at := join(path+".when", fact)
		ok = v.oneOf(at, "fact", fact, vocab.Facts) && ok
		switch rule.When[fact].(type) {
		case bool, string, float64:
		default:
			v.bad(at, "the value of a fact is text, a number, true or false")
		}
	}
	if ok && vocab.CheckRule != nil {
		if err := vocab.CheckRule(rule); err != nil {
			v.bad(path, "%s", phrase.OneLine(err))
		}
	}
}

func (v *validator) step(i int) {
	path, s := stepPath(i), &v.spec.Steps[i]
	if s.Repeat != nil {
		v.bad(path+".repeat", "a plan lists its steps one by one: write them out")
		return
	}
	if s.When.IsZero() && s.After == (Span{}) && s.Do == nil {
		v.bad(path, "waits for nothing and does nothing: give it when, after or do")
	}
	v.trigger(path+".when", s.When, i)
	switch {
	case s.Do != nil:
		v.op(path+".do", s.Do)
		if s.ForGood {
			v.forGood(path+".forGood", s.Do)
		}
	case s.ForGood:
		v.bad(path+".forGood", "the step does nothing: give it do, or leave this out")
	}
}

func (v *validator) judgement() {
	inv := func(i int) string { return fmt.Sprintf("spec.invariants[%d]", i) }
	for i, id := range v.spec.Invariants {
		v.oneOf(inv(i), "invariant", id, v.invariants)
	}
	v.distinct(v.spec.Invariants, inv)
	judged := v.spec.Invariants
	if violated := v.spec.Expect.Violated; v.oneOf("spec.expect.violated", "invariant", violated, v.invariants) &&
		len(judged) > 0 && !slices.Contains(judged, violated) {
		v.bad("spec.expect.violated", "%s is not judged: add it to spec.invariants", violated)
	}
	v.claimList()
	if events := v.spec.Expect.Events; len(events) > 0 && v.spec.Expect.Violated != "" {
		v.bad("spec.expect.events", "cannot be combined with violated: a violation ends the run before the story has been told")
	}
	for i := range v.spec.Expect.Events {
		v.assertion(fmt.Sprintf("spec.expect.events[%d]", i), &v.spec.Expect.Events[i])
	}
	world := func(i int) string { return fmt.Sprintf("spec.worlds[%d]", i) }
	for i, name := range v.spec.Worlds {
		if names := v.vocab.worlds(); names != nil {
			v.oneOf(world(i), "world", name, names)
		}
	}
	v.distinct(v.spec.Worlds, world)
	premise := func(i int) string { return fmt.Sprintf("spec.assumes[%d]", i) }
	for i, name := range v.spec.Assumes {
		v.oneOf(premise(i), "premise", name, premises)
	}
	v.distinct(v.spec.Assumes, premise)
}

// plan checks what a plan has beyond a scenario.
func (v *validator) plan(p *Plan) {
	if !digest.MatchString(p.Digest) {
		v.bad("digest", "%s is not a digest: a digest has 16 hexadecimal digits", phrase.Quote(p.Digest))
	}
	for i, d := range p.Deviations {
		path := fmt.Sprintf("deviations[%d]", i)
		if first := slices.IndexFunc(p.Deviations, func(other Deviation) bool { return other.Step == d.Step }); first < i {
			v.bad(path+".step", "%s already deviates in deviations[%d]: list each step once", phrase.Quote(d.Step), first)
		}
		deed, err := ParseDeed(d.Step)
		switch {
		case !NamesDeed(d.Step):
			if !deviationStep.MatchString(d.Step) {
				v.bad(path+".step", "%s does not name a step: write ACTOR/CLASS/N, with N counted from 1", phrase.Quote(d.Step))
			}
		case err != nil:
			v.bad(path+".step", "%s", phrase.OneLine(err))
		case d.Fault != "" && !slices.Contains(deed.Faults(), d.Fault):
			v.bad(path+".fault", "the fault %s does not apply to such a step", d.Fault)
		}
		var faults []string
		for _, fault := range StepFaults() {
			faults = append(faults, string(fault))
		}
		v.oneOf(path+".fault", "fault", string(d.Fault), faults)
		switch {
		case d.Delay == 0 && d.Fault == "":
			v.bad(path, "is not a deviation: give it a delay or a fault")
		case d.Delay == 0 && d.Fault.HasExtent():
			v.bad(path, "does not say by how much: give it a delay as well as %s", d.Fault)
		}
	}
	if len(v.doc.problems) > 0 {
		return
	}
	// Compiling it once more finds what Compile would have to decide.
	again, err := Compile(&Scenario{Metadata: p.Metadata, Spec: p.Spec}, p.Seed)
	if err != nil {
		v.bad("spec", "%s", phrase.OneLine(err))
		return
	}
	again.Version, again.Digest, again.Deviations = p.Version, p.Digest, p.Deviations
	if before, after := p.Text(), again.Text(); !bytes.Equal(before, after) {
		v.bad("spec", "leaves something open, which a plan must not: %s", firstDifference(before, after))
	}
}

// firstDifference shows the first line of a plan that compiling it adds or
// changes.
func firstDifference(before, after []byte) string {
	lines := bytes.Split(after, []byte("\n"))
	for i, old := range bytes.Split(before, []byte("\n")) {
		if i < len(lines) && !bytes.Equal(old, lines[i]) {
			return "write " + strconv.Quote(string(bytes.TrimSpace(lines[i])))
		}
	}
	return "write the defaults out"
}

// stops checks how long processes take to stop.
func (v *validator) stops(at, value string) {
	if value == "" || value == "never" {
		return
	}
	if d, err := time.ParseDuration(value); err != nil || d < 0 {
		v.bad(at, "%s is no time in which a process stops: use a duration such as 20s, or never", phrase.Quote(value))
	}
}
