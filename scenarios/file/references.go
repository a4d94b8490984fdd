package file

import (
	"maps"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

func (v *validator) Host(path, name string) {
	if v.hosts != nil && v.doc.nodes[path] != nil && !v.OneOf(path, "host", name, v.hosts) {
		v.unsure = true
	}
}

// named checks the name of an object of a kind.
func (v *validator) named(path, kind, name string) {
	switch v.vocab.Kinds.Get(kind).Named {
	case scenarios.Freely:
		if !dnsLabel.MatchString(name) {
			v.Bad(path, "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(name))
		}
	case scenarios.AfterHost:
		v.Host(path, name)
	case scenarios.AfterNode:
		v.ofHost(path, kind, name, v.nodes)
	case scenarios.AfterMachine:
		v.ofHost(path, kind, name, v.machines)
	case scenarios.AfterCluster:
		if v.creates(kind + "/" + name) {
			return // beside that of the topology
		}
		if v.spec.HealthCheck == nil && !v.doc.broken("spec.healthCheck") {
			v.Bad(path, "there is none, because spec has no healthCheck")
		}
		v.OneOf(path, kind, name, []string{scenarios.ClusterName})
	}
}

// creates reports whether a step creates an object.
func (v *validator) creates(object string) bool {
	return slices.ContainsFunc(v.spec.Steps, func(s scenarios.Step) bool {
		return s.Do != nil && s.Do.Create != nil && s.Do.Create.Object == object && len(s.Do.Create.With) > 0
	})
}

// ofHost checks the name of an object that each host has.
func (v *validator) ofHost(path, kind, name string, valid []string) {
	if v.hosts != nil && v.doc.nodes[path] != nil && !v.OneOf(path, kind, name, valid) {
		v.unsure = true
	}
}

func (v *validator) Object(path, object string, has func(*scenarios.Kind) bool) (kind string) {
	kinds := v.vocab.Kinds.Names(has)
	kind, name, named := strings.Cut(object, "/")
	switch {
	case !named:
		v.Bad(path, "%s does not name an object: write KIND/NAME with one of %s", phrase.Quote(object), strings.Join(kinds, ", "))
	case v.OneOf(path, "kind", kind, kinds):
		v.named(path, kind, name)
		return kind
	}
	return ""
}

// Selection checks what an operation of a user is done to, whose kind must have
// something.
func (v *validator) Selection(path string, s scenarios.Selection, has func(*scenarios.Kind) bool) (kind string) {
	named := v.doc.nodes[path+".object"] != nil
	ofKind, labelled := v.doc.nodes[path+".kind"] != nil, v.doc.nodes[path+".labels"] != nil
	switch {
	case named && !ofKind && !labelled:
		return v.Object(path+".object", s.Object, has)
	case named || !ofKind || !labelled:
		v.Bad(path, "does not say which objects: give it object, or kind and labels")
		return ""
	}
	v.labels(path+".labels", s.Labels)
	if !v.OneOf(path+".kind", "kind", s.Kind, v.vocab.Kinds.Names(has)) {
		return ""
	}
	return s.Kind
}

func (v *validator) labels(path string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !scenarios.QualifiedName.MatchString(key) || !labelValue.MatchString(labels[key]) {
			v.Bad(join(path, key), "%s=%s is not a label that Kubernetes accepts", phrase.Quote(key), phrase.Quote(labels[key]))
		}
	}
}

func (v *validator) Controller(path, name string) {
	_, exists := v.vocab.Controllers[v.base(name)]
	switch {
	case v.controllers == nil || slices.Contains(v.controllers, name):
	case name == workloadController:
		v.Bad(path, "the controller %s does not run: spec.topology has no workload", name)
	case v.vocab.Controllers[name].ForVolumes && v.spec.Topology.Workload.Volume == nil:
		v.Bad(path, "the controller %s does not run: the workload has no volume", name)
	case exists && v.vocab.Controllers[name].EveryHost && slices.ContainsFunc(v.controllers, func(p string) bool { return v.onHost(p) && v.base(p) == name }):
		v.Bad(path, "the controller %s runs on every host: name one of its processes, such as %s", name, scenarios.ProcessOn(name, v.hosts[0]))
	case exists:
		v.Bad(path, "the controller %s does not run: add it to spec.controllers, or start it in an earlier step", name)
	default:
		v.OneOf(path, "controller", name, v.controllers)
	}
}

// base is the controller that a process is of.
func (v *validator) base(process string) string {
	if _, name, ok := strings.Cut(process, "."); ok {
		return name
	}
	name := history.ControllerOf(process)
	if _, known := v.vocab.Controllers[name]; known {
		return name
	}
	return process
}

// onHost reports whether a process is one of those that run on hosts.
func (v *validator) onHost(process string) bool { return strings.Contains(process, ".") }

// distinct reports names that are there twice.
func (v *validator) distinct(names []string, path func(i int) string) {
	for i, name := range names {
		if first := slices.Index(names, name); first < i {
			v.Bad(path(i), "%s is listed twice, first in %s", phrase.Quote(name), path(first))
		}
	}
}
