package file

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// op checks one operation against the operations before it.
func (v *validator) op(path string, op *scenarios.Op) {
	names := op.Names()
	if len(names) != 1 {
		if len(names) == 0 {
			v.Bad(path, "has no operation: give it one of %s", strings.Join(scenarios.Operations(), ", "))
		} else {
			v.Bad(path, "has %d operations, %s: a step does exactly one", len(names), strings.Join(names, " and "))
		}
		return
	}
	path = join(path, names[0])
	for _, user := range op.Users() {
		for _, away := range scenarios.WithoutAPI {
			if slices.Contains(v.open, away) {
				v.Bad(path, "no user can do this while %s: add apiRestore before this step", away)
			}
		}
		if _, name, named := strings.Cut(user, "/"); named && !dnsLabel.MatchString(name) {
			v.Bad(path+".as", "%s is not a valid name of a user: use lower-case letters, digits and dashes", phrase.Quote(name))
		}
	}
	op.Check(v, path)
	ends := op.Ends()
	for _, clause := range v.lasting {
		if slices.ContainsFunc(ends, func(end string) bool { return end != scenarios.Everything && scenarios.Ended(clause, end) }) {
			v.Bad(path, "ends what an earlier step does for good: leave out its forGood, or this step")
		}
	}
	before := len(v.open)
	v.open = slices.DeleteFunc(v.open, func(clause string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return scenarios.Ended(clause, end) })
	})
	if orphan := op.Orphan(); orphan != "" && len(v.open) == before && !v.unsure {
		v.Bad(path, "no step before this one has %s", orphan)
	}
	if begun := op.Begins(); begun != "" && !slices.Contains(v.open, begun) {
		v.open = append(v.open, begun)
	}
}

// user checks the name of a user who is waited for: one of those who do something.
func (v *validator) user(path, name string) {
	users := []string{history.User}
	for i := range v.spec.Steps {
		if do := v.spec.Steps[i].Do; do != nil {
			users = append(users, do.Users()...)
		}
	}
	v.OneOf(path, "user", name, users)
}

// forGood checks that what a step does can last beyond the story.
func (v *validator) forGood(path string, op *scenarios.Op) {
	switch names := op.Names(); {
	case len(names) != 1: // which op has reported
	case !op.MayLast():
		v.Bad(path, "%s is nothing that lasts: only %s can be done for good", names[0], strings.Join(scenarios.Lasting(), ", "))
	default:
		v.lasting = append(v.lasting, op.Begins())
	}
}

func (v *validator) Spec() *scenarios.Spec { return v.spec }

func (v *validator) Domain(path, name string) {
	var domains []string
	for _, host := range v.spec.Topology.Hosts {
		if host.Domain != "" && !slices.Contains(domains, host.Domain) {
			domains = append(domains, host.Domain)
		}
	}
	v.ofHost(path, "domain", name, domains)
}

func (v *validator) Controllers() []string { return v.controllers }

func (v *validator) About(process string) (standIn bool, cached []string) {
	c := v.vocab.Controllers[v.base(process)]
	return c.StandIn, c.Kinds
}

func (v *validator) Kinds() scenarios.Kinds { return v.vocab.Kinds }

func (v *validator) Content(path, kind string, merge json.RawMessage) {
	if v.vocab.CheckPatch == nil || v.doc.broken(path) {
		return
	}
	if err := v.vocab.CheckPatch(kind, merge); err != nil {
		v.Bad(path, "%s", phrase.OneLine(err))
	}
}

func (v *validator) Reset(path, name string) {
	if valid := v.vocab.Values[history.BMCCommand]; valid != nil {
		v.OneOf(path, "command", name, valid)
	}
}

func (v *validator) Second(path, name string) {
	switch {
	case v.controllers == nil:
	case v.onHost(name):
		v.Bad(path, "%s runs only once on its host", name)
	case v.base(name) != name:
		v.Bad(path, "%s is itself a second process", name)
	case slices.Contains(v.controllers, history.Process(name, 2)):
		v.Bad(path, "a second %s is already running", name)
	case !slices.Contains(v.controllers, name):
		v.Controller(path, name)
	default:
		v.controllers = append(v.controllers, history.Process(name, 2))
		v.seconds = append(v.seconds, history.Process(name, 2))
	}
}

func (v *validator) NoSecond(controller string) {
	v.gone(func(second string) bool { return second == history.Process(controller, 2) })
}

// gone takes second processes from those that can be named.
func (v *validator) gone(these func(second string) bool) {
	v.controllers = slices.DeleteFunc(v.controllers, func(name string) bool { return slices.Contains(v.seconds, name) && these(name) })
	v.seconds = slices.DeleteFunc(v.seconds, these)
}

// Healed ends second processes, and faults: none can be removed any more.
func (v *validator) Healed() {
	v.gone(func(string) bool { return true })
	v.ended = slices.Clone(v.faults)
}

func (v *validator) Fault(path string, op *scenarios.FaultOp) {
	v.Host(path+".host", op.Host)
	switch {
	case op.Name == "":
		v.Bad(path+".name", "is empty: removeFault and the history need it")
	case slices.Contains(v.faults, op.Name):
		v.Bad(path+".name", "a fault %s was added before: use another name, so that the history can tell them apart", phrase.Quote(op.Name))
	default:
		v.faults = append(v.faults, op.Name)
	}
	if v.vocab.Fault == nil {
		v.Bad(path+".rule", "faults are not supported here")
		return
	}
	rule := v.vocab.Fault()
	if !v.doc.decodeForeign(path+".rule", rule) {
		return
	}
	if err := nameRule(rule, op); err != nil {
		v.Bad(path+".rule.name", "%s", err)
		return
	}
	v.ask(path+".rule", rule)
	if v.vocab.CheckFault != nil && v.hosts != nil && !v.doc.broken(path) {
		if err := v.vocab.CheckFault(rule, op.Host, v.hosts); err != nil {
			v.Bad(path+".rule", "%s", phrase.OneLine(err))
		}
	}
}

// nameRule gives the fault's name to a rule that can take one, in its JSON too.
func nameRule(rule any, op *scenarios.FaultOp) error {
	value := reflect.ValueOf(rule).Elem()
	for _, f := range fieldsOf(value.Type()) {
		if f.name != "name" || f.typ.Kind() != reflect.String {
			continue
		}
		field := value.FieldByIndex(f.index)
		if written := field.String(); written != "" && written != op.Name {
			return fmt.Errorf("the fault is named %s: leave out the rule's name", phrase.Quote(op.Name))
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
	return v.OneOf(path, "fault", name, v.faults)
}

func (v *validator) NoFault(path, name string) {
	if !v.fault(path, name) {
		return
	}
	if slices.Contains(v.ended, name) {
		v.Bad(path, "the fault %s has been removed before", phrase.Quote(name))
	}
	v.ended = append(v.ended, name)
}
