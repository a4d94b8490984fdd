package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// The worlds that a scenario can be told in.
const (
	worldSim = "sim"
	worldLab = "lab"
)

var (
	worlds      = []string{worldSim, worldLab}
	seedNumbers = []string{"000", "001", "002", "003", "004"}
	crashPoints = []string{string(CrashBefore), string(CrashAfter)}
	// Kinds of objects that operations can name: those that have annotations which
	// matter, that users change, and that users make.
	annotated = []string{"BareMetalHost", "Machine", "Node"}
	custom    = []string{"BareMetalHost", "Machine", healthCheckKind}
	changed   = append(slices.Clone(annotated), healthCheckKind)
	made      = []string{"BareMetalHost", "Machine", healthCheckKind}
)

// What failAPI can be about.
var (
	apiVerbs = []string{"get", "list", "create", "update", "patch", "delete"}
	apiKinds = []string{"BareMetalHost", "Lease", "Machine", healthCheckKind, "Node", "Pod", "Secret"}
	apiCodes = []int{403, 404, 409, 429, 500}
)

// maxReplicas bounds the processes of a controller.
const maxReplicas = 3

// healthCheckKind is the kind of the one object that is no host's.
const healthCheckKind = "MachineHealthCheck"

// Grammars of names. Kubernetes sets those of labels and annotations; a host is
// a Node and so has a name out of DNS.
const (
	maxUnhealthyPattern  = `^([0-9]{1,4}|[0-9]{1,2}%|100%)$`
	dnsLabelPattern      = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	upstreamPattern      = `^[A-Za-z0-9][-A-Za-z0-9]*/[-A-Za-z0-9_.]+#[1-9][0-9]*$`
	objectPattern        = `^(BareMetalHost|Machine|Node)/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	changedPattern       = `^((BareMetalHost|Machine|Node)/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|MachineHealthCheck/` + ClusterName + `)$`
	qualifiedNamePattern = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelValuePattern    = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
)

var (
	maxUnhealthy  = regexp.MustCompile(maxUnhealthyPattern)
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
	// nodes are the names of the hosts' Nodes.
	nodes      []string
	invariants []string
	// faults are the names of the faults that were added so far; ended of those
	// that were removed again.
	faults, ended []string
	// open are the states that earlier steps have begun: "cut worker-1".
	open map[string]bool
	// unsure says that a step is broken, so that nothing can be said about what
	// earlier steps have done.
	unsure bool
}

func newValidator(doc *document, vocab Vocabulary, spec *Spec) *validator {
	v := &validator{
		doc: doc, vocab: vocab, spec: spec, invariants: invariantIDs(),
		open: map[string]bool{}, unsure: doc.broken("spec.steps"),
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
		}
	}
	if !doc.broken("spec.controllers") {
		v.controllers = []string{}
		for _, c := range spec.Controllers {
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
	switch {
	case kind == healthCheckKind:
		if v.spec.HealthCheck == nil && !v.doc.broken("spec.healthCheck") {
			v.bad(path, "there is none: spec has no healthCheck")
		}
		v.oneOf(path, kind, name, []string{ClusterName})
	case kind == "Node" && v.hosts != nil && v.doc.nodes[path] != nil:
		if !v.oneOf(path, "Node", name, v.nodes) {
			v.unsure = true
		}
	case kind != "Node":
		v.host(path, name)
	}
}

// object checks what an operation names, which must be of one of these kinds.
func (v *validator) object(path, object string, kinds []string) (kind string) {
	kind, name, named := strings.Cut(object, "/")
	switch {
	case !named:
		v.bad(path, "%s is no object: write KIND/NAME with one of %s", quote(object), strings.Join(kinds, ", "))
	case v.oneOf(path, "kind", kind, kinds):
		v.named(path, kind, name)
		return kind
	}
	return ""
}

func (v *validator) controller(path, name string) {
	_, exists := v.vocab.Controllers[v.base(name)]
	switch {
	case v.controllers == nil || slices.Contains(v.controllers, name):
	case name == workloadController:
		v.bad(path, "the controller %s takes no part: spec.topology has no workload", name)
	case exists:
		v.bad(path, "the controller %s takes no part: add it to spec.controllers, or start it before", name)
	default:
		v.oneOf(path, "controller", name, v.controllers)
	}
}

// base is the controller that a process is of.
func (v *validator) base(process string) string {
	for name := range v.vocab.Controllers { // order does not matter: one at most has it
		for n := 2; n <= maxReplicas; n++ {
			if process == Process(name, n) {
				return name
			}
		}
	}
	return process
}

// distinct reports names that are there twice.
func (v *validator) distinct(names []string, path func(i int) string) {
	for i, name := range names {
		if first := slices.Index(names, name); first < i {
			v.bad(path(i), "%s is there twice: first as %s", quote(name), path(first))
		}
	}
}

func (v *validator) metadata(m *Metadata) {
	if !dnsLabel.MatchString(m.Name) {
		v.bad("metadata.name", "%s is no name: use at most 63 lower-case letters, digits and dashes, no dash first or last", quote(m.Name))
	}
	if strings.TrimSpace(m.Description) == "" {
		v.bad("metadata.description", "is empty: say in a sentence what happens and what it shows")
	}
	seed := func(i int) string { return fmt.Sprintf("metadata.seeds[%d]", i) }
	for i, number := range m.Seeds {
		v.oneOf(seed(i), "seed", number, seedNumbers)
	}
	v.distinct(m.Seeds, seed)
	if !upstreamRef.MatchString(m.Upstream) {
		v.bad("metadata.upstream", "%s is no thread: write owner/repository#number", quote(m.Upstream))
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
}

func (v *validator) topology() {
	path := func(i int) string { return fmt.Sprintf("spec.topology.hosts[%d].name", i) }
	hosts := v.spec.Topology.Hosts
	if len(hosts) == 0 {
		v.bad("spec.topology.hosts", "is empty: a scenario needs a host")
	}
	names, nodes := make([]string, len(hosts)), make([]string, len(hosts))
	for i, host := range hosts {
		names[i], nodes[i] = host.Name, host.Node()
		at := fmt.Sprintf("spec.topology.hosts[%d]", i)
		if !dnsLabel.MatchString(host.Name) {
			v.bad(path(i), "%s is no host name: use at most 63 lower-case letters, digits and dashes, no dash first or last", quote(host.Name))
		}
		if !dnsLabel.MatchString(host.Node()) {
			v.bad(at+".nodeName", "%s is no name of a Node here: use at most 63 lower-case letters, digits and dashes, no dash first or last", quote(host.NodeName))
		}
		for _, key := range slices.Sorted(maps.Keys(host.Labels)) {
			if !qualifiedName.MatchString(key) || !labelValue.MatchString(host.Labels[key]) {
				v.bad(join(at+".labels", key), "%s=%s is no label that Kubernetes takes", quote(key), quote(host.Labels[key]))
			}
		}
	}
	v.distinct(names, path)
	v.distinct(nodes, func(i int) string {
		if hosts[i].NodeName == "" {
			return path(i)
		}
		return fmt.Sprintf("spec.topology.hosts[%d].nodeName", i)
	})
	v.host("spec.topology.workload.host", v.spec.Topology.Workload.Host)
	v.atLeast("spec.topology.lease", v.spec.Topology.Lease, 100*time.Millisecond)
	v.atLeast("spec.limits.step", v.spec.Limits.Step, 100*time.Millisecond)
	v.atLeast("spec.limits.settle", v.spec.Limits.Settle, 100*time.Millisecond)
}

// atLeast reports a time that is too short for anything to happen in it.
func (v *validator) atLeast(path string, d Duration, least time.Duration) {
	if d != 0 && time.Duration(d) < least {
		v.bad(path, "%s is too short: use at least %s", time.Duration(d), least)
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
		v.bad(path+".maxUnhealthy", "%s is neither a number of Machines nor a percentage such as 40%%", quote(check.MaxUnhealthy))
	}
	if v.controllers != nil && !slices.Contains(v.controllers, healthCheckController) {
		v.doc.bad(path, "nobody acts on it: add the controller %s to spec.controllers", healthCheckController)
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
		if v.doc.broken(path(i)) || !v.oneOf(path(i), "controller", c.Name, known) {
			continue
		}
		vocab := v.vocab.Controllers[c.Name]
		if c.Replicas < 2 || c.Replicas > maxReplicas {
			v.bad(at+".replicas", "%d: use 2 or %d, or leave it out", c.Replicas, maxReplicas)
		} else if v.inLab() {
			v.bad(at+".replicas", "the lab runs one process of each controller, and two by startSecond: say worlds: [%s] in spec", worldSim)
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
			v.bad(path, "%s", oneLine(err))
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
			v.bad(at, "a fact is a text, a number, true or false")
		}
	}
	if ok && vocab.CheckRule != nil {
		if err := vocab.CheckRule(rule); err != nil {
			v.bad(path, "%s", oneLine(err))
		}
	}
}

func (v *validator) step(i int) {
	path, s := fmt.Sprintf("spec.steps[%d]", i), &v.spec.Steps[i]
	if s.When.IsZero() && s.After == (Span{}) && s.Do == nil {
		v.bad(path, "waits for nothing and does nothing: give it when, after or do")
	}
	v.trigger(path+".when", s.When, i)
	if s.Do != nil {
		v.op(path+".do", s.Do)
	}
}

// op checks one operation against the operations before it.
func (v *validator) op(path string, op *Op) {
	if set := operations(op); len(set) != 1 {
		if len(set) == 0 {
			v.bad(path, "no operation: give it one of %s", strings.Join(operationNames(), ", "))
		} else {
			v.bad(path, "%d operations, %s: a step does one", len(set), strings.Join(set, " and "))
		}
		return
	}
	path = join(path, operations(op)[0])
	if byUser := op.Annotate != nil || op.RemoveAnnotation != nil || op.SetOnline != nil || op.Patch != nil || op.Delete != nil || op.Create != nil; byUser && v.open["API outage"] {
		v.bad(path, "no user can do this while the API server is away: add apiRestore before it")
	}
	host := func(h *HostOp) string {
		v.host(path+".host", h.Host)
		return h.Host
	}
	switch {
	case op.Cut != nil:
		v.open["cut "+host(op.Cut)] = true
	case op.Restore != nil:
		v.end(path, "cut "+host(op.Restore), "no step before this one has cut it")
	case op.Pause != nil:
		v.open["pause "+host(op.Pause)] = true
	case op.Resume != nil:
		v.end(path, "pause "+host(op.Resume), "no step before this one has paused it")
	case op.StopKubelet != nil:
		host(op.StopKubelet)
	case op.StopFeeding != nil:
		v.stopFeeding(path, host(op.StopFeeding))
	case op.IgnoreShutdown != nil:
		host(op.IgnoreShutdown)
	case op.PowerLoss != nil:
		host(op.PowerLoss)
	case op.PowerUp != nil:
		host(op.PowerUp)
	case op.SetOnline != nil:
		v.host(path+".host", op.SetOnline.Host)
	case op.AddFault != nil:
		v.addFault(path, op.AddFault)
	case op.RemoveFault != nil:
		v.removeFault(path+".name", op.RemoveFault.Name)
	case op.Crash != nil:
		v.crash(path, op.Crash)
	case op.StartSecond != nil:
		v.startSecond(path+".controller", op.StartSecond.Controller)
	case op.StopSecond != nil:
		v.end(path, "second "+op.StopSecond.Controller, "no step before this one has started it")
		v.controllers = slices.DeleteFunc(v.controllers, func(name string) bool { return name == Process(op.StopSecond.Controller, 2) })
	case op.PauseController != nil:
		v.controller(path+".controller", op.PauseController.Controller)
		v.open["pause controller "+op.PauseController.Controller] = true
		if v.inLab() {
			v.bad(path, "the lab cannot let one controller stand still: say worlds: [%s] in spec", worldSim)
		}
	case op.ResumeController != nil:
		v.end(path, "pause controller "+op.ResumeController.Controller, "no step before this one has paused it")
	case op.SetClock != nil:
		v.setClock(path, op.SetClock)
	case op.FreezeCache != nil:
		v.cache(path, op.FreezeCache)
		v.open[fmt.Sprintf("freeze %s %s", op.FreezeCache.Controller, op.FreezeCache.Kind)] = true
		if v.inLab() {
			v.bad(path, "the lab cannot freeze a cache: say worlds: [%s] in spec", worldSim)
		}
	case op.ThawCache != nil:
		v.cache(path, op.ThawCache)
		v.end(path, fmt.Sprintf("freeze %s %s", op.ThawCache.Controller, op.ThawCache.Kind), "no step before this one has frozen it")
	case op.Annotate != nil:
		v.annotation(path, op.Annotate)
	case op.RemoveAnnotation != nil:
		v.annotation(path, op.RemoveAnnotation)
		v.bad(path+".value", "an annotation is removed whatever its value: leave it out")
	case op.FailAPI != nil:
		v.failAPI(path, op.FailAPI)
		v.open["fail the API"] = true
	case op.APIOutage != nil:
		v.open["API outage"] = true
		if v.inLab() {
			v.bad(path, "the lab's observers need the API server: say worlds: [%s] in spec", worldSim)
		}
	case op.APIRestore != nil:
		if !v.open["API outage"] && !v.open["fail the API"] && !v.unsure {
			v.bad(path, "no step before this one has taken it away or made it fail")
		}
		delete(v.open, "API outage")
		delete(v.open, "fail the API")
	case op.Patch != nil:
		v.patch(path, op.Patch)
	case op.Delete != nil:
		v.object(path+".object", op.Delete.Object, changed)
	case op.Create != nil:
		if strings.HasPrefix(op.Create.Object, "Node/") {
			v.bad(path+".object", "a Node is made by its kubelet: start that by powerLoss and powerUp")
		} else {
			v.object(path+".object", op.Create.Object, made)
		}
	case op.Heal != nil:
		for state := range v.open { // order does not matter: each process once
			if controller, ok := strings.CutPrefix(state, "second "); ok {
				v.controllers = slices.DeleteFunc(v.controllers, func(name string) bool { return name == Process(controller, 2) })
			}
		}
		clear(v.open)
		v.ended = slices.Clone(v.faults)
	}
}

// inLab says that the story is to be told in the lab as well.
func (v *validator) inLab() bool {
	return len(v.spec.Worlds) == 0 || slices.Contains(v.spec.Worlds, worldLab)
}

// operations names the fields of an Op that are set.
func operations(op *Op) []string {
	var set []string
	value := reflect.ValueOf(op).Elem()
	for _, f := range fieldsOf(value.Type()) {
		if !value.FieldByIndex(f.index).IsNil() {
			set = append(set, f.name)
		}
	}
	return set
}

func operationNames() []string {
	var names []string
	for _, f := range fieldsOf(reflect.TypeFor[Op]()) {
		names = append(names, f.name)
	}
	return names
}

// end closes a state that an earlier step must have begun.
func (v *validator) end(path, state, otherwise string) {
	if !v.open[state] && !v.unsure {
		v.bad(path, "%s", otherwise)
	}
	delete(v.open, state)
}

func (v *validator) setClock(path string, op *ClockOp) {
	v.host(path+".host", op.Host)
	v.controller(path+".controller", op.Controller)
	if (op.Host == "") == (op.Controller == "") {
		v.bad(path, "whose clock? give it either host or controller")
	}
	if op.Ahead > 0 && op.Behind > 0 {
		v.bad(path+".behind", "a clock is ahead or behind, not both")
	}
	if v.vocab.Controllers[v.base(op.Controller)].StandIn {
		v.bad(path+".controller", "%s stands in for something that compares no clocks", op.Controller)
	}
	if v.inLab() {
		v.bad(path, "the lab has one clock: say worlds: [%s] in spec", worldSim)
	}
}

func (v *validator) startSecond(path, name string) {
	switch {
	case v.controllers == nil:
	case v.base(name) != name:
		v.bad(path, "%s is such a second process itself", name)
	case slices.Contains(v.controllers, Process(name, 2)):
		v.bad(path, "there is a second %s already", name)
	case !slices.Contains(v.controllers, name):
		v.controller(path, name)
	default:
		v.controllers = append(v.controllers, Process(name, 2))
		v.open["second "+name] = true
	}
}

func (v *validator) stopFeeding(path, name string) {
	for _, host := range v.spec.Topology.Hosts {
		if host.Name == name && host.Watchdog == 0 {
			v.bad(path+".host", "the host %s has no watchdog", name)
		}
	}
}

// restartTime is the least time in which a controller starts again.
const restartTime = 500 * time.Millisecond

func (v *validator) crash(path string, op *CrashOp) {
	v.controller(path+".controller", op.Controller)
	if op.Effect < 1 {
		v.bad(path+".effect", "%d: effects are counted from 1; leave it out to crash at once", op.Effect)
	}
	v.atLeast(path+".restartAfter", op.RestartAfter, restartTime)
	v.oneOf(path+".point", "crash point", string(op.Point), crashPoints)
	if v.inLab() && (op.StaleBy > 0 || op.LateBy > 0) {
		v.bad(path, "the lab's API server is never behind, and holds no request back: say worlds: [%s] in spec", worldSim)
	}
	switch {
	case op.LateBy > 0 && op.Effect > 0 && op.Point == CrashAfter, op.LateBy > 0 && op.Each && op.Point == CrashAfter:
		v.bad(path+".lateBy", "what stands after the effect is not under way any more: say point: before")
	case op.Each && op.Effect > 0:
		v.bad(path+".effect", "each is around every effect: leave this out")
	case !op.Each && op.Effect == 0 && op.Point == CrashBefore:
		v.bad(path+".point", "before which effect? add effect or each")
	}
}

func (v *validator) cache(path string, op *CacheOp) {
	v.controller(path+".controller", op.Controller)
	if kinds := v.vocab.Controllers[v.base(op.Controller)].Kinds; len(kinds) > 0 {
		v.oneOf(path+".kind", "kind in the cache of "+op.Controller, op.Kind, kinds)
	} else if op.Kind == "" {
		v.bad(path+".kind", "is empty: name a kind, such as BareMetalHost")
	}
}

func (v *validator) annotation(path string, op *AnnotateOp) {
	v.object(path+".object", op.Object, annotated)
	if !qualifiedName.MatchString(op.Key) {
		v.bad(path+".key", "%s is no annotation that Kubernetes takes", quote(op.Key))
	}
}

func (v *validator) failAPI(path string, op *FailAPIOp) {
	v.controller(path+".controller", op.Controller)
	v.oneOf(path+".verb", "verb", op.Verb, apiVerbs)
	v.oneOf(path+".kind", "kind", op.Kind, apiKinds)
	switch {
	case !slices.Contains(apiCodes, op.Code):
		v.bad(path+".code", "%d: use one of %s", op.Code, strings.Trim(fmt.Sprint(apiCodes), "[]"))
	case op.Code == http.StatusNotFound && !slices.Contains(custom, op.Kind):
		v.bad(path+".code", "only resources of a CustomResourceDefinition can be missing as a whole: give kind one of %s", strings.Join(custom, ", "))
	}
	if op.Times < 1 {
		v.bad(path+".times", "%d: at least once, or leave it out", op.Times)
	}
}

func (v *validator) patch(path string, op *PatchOp) {
	kind := v.object(path+".object", op.Object, changed)
	if v.doc.broken(path + ".merge") {
		return
	}
	object, status, err := op.Split()
	switch {
	case err != nil:
		v.bad(path+".merge", "%s where the fields of an object are needed", op.Merge)
	case object == nil && status == nil:
		v.bad(path+".merge", "changes nothing")
	case kind != "" && v.vocab.CheckPatch != nil:
		if err := v.vocab.CheckPatch(kind, op.Merge); err != nil {
			v.bad(path+".merge", "%s", oneLine(err))
		}
	}
}

func (v *validator) addFault(path string, op *FaultOp) {
	v.host(path+".host", op.Host)
	switch {
	case op.Name == "":
		v.bad(path+".name", "is empty: removeFault and the history call the fault by it")
	case slices.Contains(v.faults, op.Name):
		v.bad(path+".name", "a fault %s was added before: the history could not tell them apart", quote(op.Name))
	default:
		v.faults = append(v.faults, op.Name)
	}
	if v.vocab.Fault == nil {
		v.bad(path+".rule", "faults are not known here")
		return
	}
	rule := v.vocab.Fault()
	if !v.doc.decodeForeign(path+".rule", rule) {
		return
	}
	if err := nameRule(rule, op); err != nil {
		v.bad(path+".rule.name", "%s", err)
		return
	}
	v.ask(path+".rule", rule)
	if v.vocab.CheckFault != nil && v.hosts != nil && !v.doc.broken(path) {
		if err := v.vocab.CheckFault(rule, op.Host, v.hosts); err != nil {
			v.bad(path+".rule", "%s", oneLine(err))
		}
	}
}

// nameRule gives the fault's name to a rule that can take one, in its JSON too.
func nameRule(rule any, op *FaultOp) error {
	value := reflect.ValueOf(rule).Elem()
	for _, f := range fieldsOf(value.Type()) {
		if f.name != "name" || f.typ.Kind() != reflect.String {
			continue
		}
		field := value.FieldByIndex(f.index)
		if written := field.String(); written != "" && written != op.Name {
			return fmt.Errorf("the fault is called %s: leave the rule's name out", quote(op.Name))
		}
		field.SetString(op.Name)
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(op.Rule, &fields); err != nil {
			return fmt.Errorf("read the rule again: %w", err)
		}
		named, err := json.Marshal(op.Name)
		if err != nil {
			return fmt.Errorf("name the rule: %w", err)
		}
		fields["name"] = named
		if op.Rule, err = json.Marshal(fields); err != nil {
			return fmt.Errorf("write the rule again: %w", err)
		}
	}
	return nil
}

// fault reports a name that no step so far has added.
func (v *validator) fault(path, name string) bool {
	if v.unsure && !slices.Contains(v.faults, name) {
		return false // the step that adds it may be one of the broken ones
	}
	return v.oneOf(path, "fault", name, v.faults)
}

func (v *validator) removeFault(path, name string) {
	if !v.fault(path, name) {
		return
	}
	if slices.Contains(v.ended, name) {
		v.bad(path, "the fault %s has been removed before", quote(name))
	}
	v.ended = append(v.ended, name)
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
	world := func(i int) string { return fmt.Sprintf("spec.worlds[%d]", i) }
	for i, name := range v.spec.Worlds {
		v.oneOf(world(i), "world", name, worlds)
	}
	v.distinct(v.spec.Worlds, world)
}

// plan checks what a plan has beyond a scenario.
func (v *validator) plan(p *Plan) {
	if !digest.MatchString(p.Digest) {
		v.bad("digest", "%s is no digest: those have 16 hexadecimal digits", quote(p.Digest))
	}
	for i, d := range p.Deviations {
		path := fmt.Sprintf("deviations[%d]", i)
		if first := slices.IndexFunc(p.Deviations, func(other Deviation) bool { return other.Step == d.Step }); first < i {
			v.bad(path+".step", "%s deviates already, in deviations[%d]: a step does so once", quote(d.Step), first)
		}
		if !deviationStep.MatchString(d.Step) {
			v.bad(path+".step", "%s names no step: write ACTOR/CLASS/N, N counted from 1", quote(d.Step))
		}
		var faults []string
		for _, fault := range StepFaults() {
			faults = append(faults, string(fault))
		}
		v.oneOf(path+".fault", "fault", string(d.Fault), faults)
		switch {
		case d.Delay == 0 && d.Fault == "":
			v.bad(path, "deviates in nothing: give it a delay or a fault")
		case d.Delay == 0 && d.Fault.HasExtent():
			v.bad(path, "says not by how much: give it a delay beside %s", d.Fault)
		}
	}
	if len(v.doc.problems) > 0 {
		return
	}
	// Compiling it once more finds what Compile would have to decide.
	again, err := Compile(&Scenario{Metadata: p.Metadata, Spec: p.Spec}, p.Seed)
	if err != nil {
		v.bad("spec", "%s", oneLine(err))
		return
	}
	again.Version, again.Digest, again.Deviations = p.Version, p.Digest, p.Deviations
	if before, after := p.Text(), again.Text(); !bytes.Equal(before, after) {
		v.bad("spec", "leaves something open, and a plan must not: %s", firstDifference(before, after))
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
