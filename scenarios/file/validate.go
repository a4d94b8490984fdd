package file

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

var seedNumbers = []string{"000", "001", "002", "003", "004"}

// maxReplicas bounds the processes of a controller.
const maxReplicas = 3

// Grammars of names. Kubernetes sets those of labels and annotations; a host is
// a Node and so has a name out of DNS.
const (
	maxUnhealthyPattern = `^([0-9]{1,4}|[0-9]{1,2}%|100%)$`
	dnsLabelPattern     = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	upstreamPattern     = `^[A-Za-z0-9][-A-Za-z0-9]*/[-A-Za-z0-9_.]+#[1-9][0-9]*$`
	labelValuePattern   = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
)

var (
	maxUnhealthy = regexp.MustCompile(maxUnhealthyPattern)
	dnsLabel     = regexp.MustCompile(dnsLabelPattern)
	upstreamRef  = regexp.MustCompile(upstreamPattern)
	labelValue   = regexp.MustCompile(labelValuePattern)
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
	for _, inv := range guarantee.All() {
		ids = append(ids, inv.ID)
	}
	return append(ids, guarantee.OneFencingPerRequest.ID)
}

// validator finds what the types don't show: names of nothing, and operations
// that make no sense where they are. It speaks of fields that the file has and
// of which nothing worse was said.
type validator struct {
	doc   *document
	vocab Vocabulary
	spec  *scenarios.Spec
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
	// lasting holds the states that steps have begun for good.
	lasting []string
	// unsure says that a step is broken, so that nothing can be said about what
	// earlier steps have done.
	unsure bool
}

func newValidator(doc *document, vocab Vocabulary, spec *scenarios.Spec) *validator {
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
			if host.Node() != "" && !slices.Contains(v.nodes, host.Node()) {
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
			if vocab.controller(c.Name).EveryHost || c.Pods != nil {
				for _, host := range v.hosts {
					v.controllers = append(v.controllers, scenarios.ProcessOn(c.Name, host))
				}
				continue
			}
			for n := 1; n <= min(max(c.Replicas, 1), maxReplicas); n++ {
				v.controllers = append(v.controllers, history.Process(c.Name, n))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(vocab.Controllers)) {
			if name == workloadController && spec.Topology.Workload.Host == "" && !doc.broken("spec.topology.workload") {
				continue // there is nothing for it to do, so it doesn't run
			}
			if vocab.Controllers[name].ForVolumes && spec.Topology.Workload.Volume == nil {
				continue
			}
			if vocab.Controllers[name].StandIn && !slices.Contains(v.controllers, name) {
				v.controllers = append(v.controllers, name)
			}
		}
	}
	return v
}

// Bad implements Checker, and so do the methods below that are exported.
func (v *validator) Bad(path, format string, args ...any) {
	if v.doc.nodes[path] != nil && !v.doc.broken(path) {
		v.doc.bad(path, format, args...)
	}
}

// OneOf reports a name that isn't among the valid ones.
func (v *validator) OneOf(path, what, name string, valid []string) bool {
	if slices.Contains(valid, name) {
		return true
	}
	if v.doc.nodes[path] != nil {
		v.Bad(path, "%s", unknown(what, name, valid))
	}
	return false
}

func (v *validator) metadata(m *scenarios.Metadata, name *regexp.Regexp) {
	if !name.MatchString(m.Name) {
		v.Bad("metadata.name", "%s is not a valid name: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(m.Name))
	}
	if strings.TrimSpace(m.Description) == "" {
		v.Bad("metadata.description", "is empty: say in a sentence what happens and what it shows")
	}
	seed := func(i int) string { return fmt.Sprintf("metadata.seeds[%d]", i) }
	for i, number := range m.Seeds {
		v.OneOf(seed(i), "seed", number, seedNumbers)
	}
	v.distinct(m.Seeds, seed)
	label := func(i int) string { return fmt.Sprintf("metadata.labels[%d]", i) }
	for i, word := range m.Labels {
		if !dnsLabel.MatchString(word) {
			v.Bad(label(i), "%s is not a valid label: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(word))
		}
	}
	v.distinct(m.Labels, label)
	if !upstreamRef.MatchString(m.Upstream) {
		v.Bad("metadata.upstream", "%s does not name a thread: write owner/repository#number", phrase.Quote(m.Upstream))
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
		v.Bad(workersPath, "a plan lists its hosts one by one: write them out")
	}
	if len(hosts) == 0 {
		v.Bad("spec.topology.hosts", "is empty: a scenario needs at least one host")
	}
	names, machines := make([]string, len(hosts)), make([]string, len(hosts))
	for i, host := range hosts {
		names[i], machines[i] = host.Name, host.Machine()
		at := fmt.Sprintf("spec.topology.hosts[%d]", i)
		if !dnsLabel.MatchString(host.Name) {
			v.Bad(path(i), "%s is not a valid host name: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.Name))
		}
		if !dnsLabel.MatchString(host.Node()) {
			v.Bad(at+".nodeName", "%s is not a valid Node name here: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.NodeName))
		}
		if !dnsLabel.MatchString(host.Machine()) {
			v.Bad(at+".machineName", "%s is not a valid Machine name here: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.MachineName))
		}
		v.labels(at+".labels", host.Labels)
		if !dnsLabel.MatchString(host.Domain) {
			v.Bad(at+".domain", "%s is not a valid name of a failure domain: use at most 63 lower-case letters, digits and dashes, not beginning or ending with a dash", phrase.Quote(host.Domain))
		}
		if host.Role != "" {
			v.OneOf(at+".role", "role", host.Role, []string{scenarios.ControlPlane})
		}
		if len(v.vocab.PowerRestores) > 0 {
			v.OneOf(at+".powerRestore", "policy", host.PowerRestore, v.vocab.PowerRestores)
		}
	}
	v.distinct(names, path)
	v.distinct(machines, func(i int) string {
		if hosts[i].MachineName == "" {
			return path(i)
		}
		return fmt.Sprintf("spec.topology.hosts[%d].machineName", i)
	})
	v.Host("spec.topology.workload.host", v.spec.Topology.Workload.Host)
	if i := slices.IndexFunc(hosts, func(h scenarios.Host) bool { return h.Off && h.Name == v.spec.Topology.Workload.Host }); i >= 0 {
		v.Bad("spec.topology.workload.host", "%s is off when the story begins: take another host", hosts[i].Name)
	}
	v.stops("spec.topology.workload.stops", v.spec.Topology.Workload.Stops)
	v.volume("spec.topology.workload.volume", &v.spec.Topology)
	scenarios.AtLeast(v, "spec.topology.lease", v.spec.Topology.Lease, 100*time.Millisecond)
	v.ironicTimes("spec.topology.ironic", v.spec.Topology.Ironic)
	v.bmc("spec.topology.bmc", v.spec.Topology.BMC)
	if path := scenarios.OwnBMCs(v.spec); path != "" && v.spec.Topology.BMC != nil {
		v.Bad(path, "only fencelab's own BMCs can do this: leave it out, or spec.topology.bmc")
	}
	scenarios.AtLeast(v, "spec.limits.step", v.spec.Limits.Step, 100*time.Millisecond)
	scenarios.AtLeast(v, "spec.limits.settle", v.spec.Limits.Settle, 100*time.Millisecond)
}

// volume checks the workload's volume, if it has one.
func (v *validator) volume(at string, t *scenarios.Topology) {
	if t.Workload.Volume == nil {
		return
	}
	if !dnsLabel.MatchString(t.Workload.Volume.Name) {
		v.Bad(at+".name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(t.Workload.Volume.Name))
	}
	if t.Workload.Host == "" {
		v.Bad(at, "there is no workload to write to it: give the workload a host")
	}
	if t.PodGC != 0 {
		v.Bad("spec.topology.podGC", "where there is a volume, Pods are collected as Kubernetes does it, which podgc stands in for: leave this out")
	}
}

// ironicTimes checks the times of an Ironic, if there is one.
func (v *validator) ironicTimes(at string, ironic *scenarios.Ironic) {
	if ironic != nil {
		v.wholeSeconds(at+".syncInterval", ironic.SyncInterval, time.Second)
		v.wholeSeconds(at+".powerTimeout", ironic.PowerTimeout, 2*time.Second)
		if ironic.Image != "" && ironic.Bin != "" {
			v.Bad(at+".image", "its executables are in bin already: leave one of the two out")
		}
		v.image(at+".image", ironic.Image)
	}
}

// wholeSeconds is for times of programs that take no others.
func (v *validator) wholeSeconds(path string, d scenarios.Duration, least time.Duration) {
	if t := time.Duration(d); t != 0 && (t < least || t%time.Second != 0) {
		v.Bad(path, "%s: use whole seconds, at least %s", t, least)
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
		value scenarios.Duration
	}{{"unhealthyAfter", check.UnhealthyAfter}, {"nodeStartupTimeout", check.NodeStartupTimeout}} {
		if d := time.Duration(timeout.value); d <= 0 || d%time.Second != 0 {
			v.Bad(join(path, timeout.name), "%s: use whole seconds, at least one", d)
		}
	}
	if !maxUnhealthy.MatchString(check.MaxUnhealthy) {
		v.Bad(path+".maxUnhealthy", "%s is neither a number of Machines nor a percentage such as 40%%", phrase.Quote(check.MaxUnhealthy))
	}
	if check.UnhealthyRange != "" {
		switch least, most := check.ActsOn(0); {
		case !scenarios.NumberRange.MatchString(check.UnhealthyRange):
			v.Bad(path+".unhealthyRange", `%s is not a range of numbers of Machines such as "[2-3]"`, phrase.Quote(check.UnhealthyRange))
		case least > most:
			v.Bad(path+".unhealthyRange", "%s is an empty range: its first number is greater than its second", phrase.Quote(check.UnhealthyRange))
		}
	}
	acts := func(c scenarios.Controller) bool {
		c.Plays = cmp.Or(c.Plays, v.vocab.controller(c.Name).Plays)
		return scenarios.PartOf(&c) == healthCheckController || slices.Contains(c.Also, healthCheckController)
	}
	if v.controllers != nil && !slices.ContainsFunc(v.spec.Controllers, acts) {
		v.doc.bad(path, "no controller acts on it: add %s to spec.controllers", healthCheckController)
	}
}

func (v *validator) step(i int) {
	path, s := stepPath(i), &v.spec.Steps[i]
	if s.Repeat != nil {
		v.Bad(path+".repeat", "a plan lists its steps one by one: write them out")
		return
	}
	if s.When.IsZero() && s.After == (scenarios.Span{}) && s.Do == nil {
		v.Bad(path, "waits for nothing and does nothing: give it when, after or do")
	}
	v.trigger(path+".when", s.When, i)
	switch {
	case s.Do != nil:
		v.op(path+".do", s.Do)
		if s.ForGood {
			v.forGood(path+".forGood", s.Do)
		}
	case s.ForGood:
		v.Bad(path+".forGood", "the step does nothing: give it do, or leave this out")
	}
}

// stops checks how long processes take to stop.
func (v *validator) stops(at, value string) {
	if value == "" || value == "never" {
		return
	}
	if d, err := time.ParseDuration(value); err != nil || d < 0 {
		v.Bad(at, "%s is no time in which a process stops: use a duration such as 20s, or never", phrase.Quote(value))
	}
}
