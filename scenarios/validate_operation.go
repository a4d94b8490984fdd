package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// op checks one operation against the operations before it.
func (v *validator) op(path string, op *Op) {
	set := op.set()
	if len(set) != 1 {
		if len(set) == 0 {
			v.bad(path, "has no operation: give it one of %s", strings.Join(operationNames(), ", "))
		} else {
			v.bad(path, "has %d operations, %s: a step does exactly one", len(set), strings.Join(namesOf(set), " and "))
		}
		return
	}
	o := set[0]
	path = join(path, o.name)
	for _, away := range [...]string{apiAway, etcdAway} {
		if o.by(op) != "" && slices.Contains(v.open, away) {
			v.bad(path, "no user can do this while %s: add apiRestore before this step", away)
		}
	}
	if _, name, named := strings.Cut(o.by(op), "/"); named && !dnsLabel.MatchString(name) {
		v.bad(path+".as", "%s is not a valid name of a user: use lower-case letters, digits and dashes", phrase.Quote(name))
	}
	o.check(v, path, op)
	ends := o.ends(op)
	for _, clause := range v.lasting {
		if slices.ContainsFunc(ends, func(end string) bool { return end != everything && ended(clause, end) }) {
			v.bad(path, "ends what an earlier step does for good: leave out its forGood, or this step")
		}
	}
	before := len(v.open)
	v.open = slices.DeleteFunc(v.open, func(clause string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return ended(clause, end) })
	})
	if o.orphan != "" && len(v.open) == before && !v.unsure {
		v.bad(path, "no step before this one has %s", o.orphan)
	}
	if s := o.begins(op); s.clause != "" && !slices.Contains(v.open, s.clause) {
		v.open = append(v.open, s.clause)
	}
}

// user checks the name of a user who is waited for: one of those who do something.
func (v *validator) user(path, name string) {
	users := []string{history.User}
	for i := range v.spec.Steps {
		if do := v.spec.Steps[i].Do; do != nil {
			for _, o := range do.set() {
				users = append(users, o.by(do))
			}
		}
	}
	v.oneOf(path, "user", name, slices.DeleteFunc(users, func(user string) bool { return user == "" }))
}

func namesOf(some []*operation) []string {
	var names []string
	for _, o := range some {
		names = append(names, o.name)
	}
	return names
}

func operationNames() []string {
	var names []string
	for i := range operations {
		names = append(names, operations[i].name)
	}
	return names
}

func (v *validator) hostOp(path string, op *HostOp) { v.host(path+".host", op.Host) }

// maxDrift is more than a clock that is worth the name can be wrong by.
const maxDrift = Duration(500 * time.Millisecond)

func (v *validator) setClock(path string, op *ClockOp) {
	v.host(path+".host", op.Host)
	v.controller(path+".controller", op.Controller)
	if (op.Host == "") == (op.Controller == "") {
		v.bad(path, "does not say whose clock: give it either host or controller")
	}
	if op.Ahead > 0 && op.Behind > 0 {
		v.bad(path+".behind", "a clock is ahead or behind, not both")
	}
	switch {
	case op.Gains > 0 && op.Loses > 0:
		v.bad(path+".loses", "a clock gains or loses, not both")
	case op.Drift() != 0 && op.Host == "":
		v.bad(path, "only a host's clock can run at a different rate")
	case op.Gains > maxDrift || op.Loses > maxDrift:
		v.bad(path, "a clock can gain or lose at most half a second each second")
	}
	if v.vocab.Controllers[v.base(op.Controller)].StandIn {
		v.bad(path+".controller", "%s is a stand-in for something that compares no clocks", op.Controller)
	}
}

func (v *validator) startSecond(path string, op *ControllerOp) {
	path, name := path+".controller", op.Controller
	switch {
	case v.controllers == nil:
	case v.onHost(name):
		v.bad(path, "%s runs only once on its host", name)
	case v.base(name) != name:
		v.bad(path, "%s is itself a second process", name)
	case slices.Contains(v.controllers, Process(name, 2)):
		v.bad(path, "a second %s is already running", name)
	case !slices.Contains(v.controllers, name):
		v.controller(path, name)
	default:
		v.controllers = append(v.controllers, Process(name, 2))
		v.seconds = append(v.seconds, Process(name, 2))
	}
}

func (v *validator) stopSecond(_ string, op *ControllerOp) {
	v.gone(func(second string) bool { return second == Process(op.Controller, 2) })
}

// gone takes second processes from those that can be named.
func (v *validator) gone(these func(second string) bool) {
	v.controllers = slices.DeleteFunc(v.controllers, func(name string) bool { return slices.Contains(v.seconds, name) && these(name) })
	v.seconds = slices.DeleteFunc(v.seconds, these)
}

// heal withdraws every fault, so that none can be removed any more.
func (v *validator) heal(string, *HealOp) {
	v.gone(func(string) bool { return true })
	v.ended = slices.Clone(v.faults)
}

// forGood checks that what a step does can last beyond the story.
func (v *validator) forGood(path string, op *Op) {
	switch set := op.set(); {
	case len(set) != 1: // which op has reported
	case !set[0].mayLast:
		var lasting []*operation
		for i := range operations {
			if operations[i].mayLast {
				lasting = append(lasting, &operations[i])
			}
		}
		v.bad(path, "%s is nothing that lasts: only %s can be done for good", set[0].name, strings.Join(namesOf(lasting), ", "))
	default:
		v.lasting = append(v.lasting, set[0].begins(op).clause)
	}
}

func (v *validator) ironic(path string, _ *struct{}) {
	if v.spec.Topology.Ironic == nil {
		v.bad(path, "there is no Ironic: add spec.topology.ironic")
	}
}

func (v *validator) stopFeeding(path string, op *HostOp) {
	v.hostOp(path, op)
	for _, host := range v.spec.Topology.Hosts {
		if host.Name == op.Host && host.Watchdog == 0 {
			v.bad(path+".host", "the host %s has no watchdog", op.Host)
		}
	}
}

// restartTime is the least time in which a controller starts again.
const restartTime = 500 * time.Millisecond

func (v *validator) crash(path string, op *CrashOp) {
	if op.Host != "" {
		v.host(path+".host", op.Host)
	}
	v.controller(path+".controller", op.Process())
	if op.Effect < 1 {
		v.bad(path+".effect", "%d: effects are counted from 1; leave it out to crash immediately", op.Effect)
	}
	v.atLeast(path+".restartAfter", op.RestartAfter, restartTime)
	v.oneOf(path+".point", "crash point", string(op.Point), crashPoints)
	switch {
	case op.LateBy > 0 && op.Effect > 0 && op.Point == CrashAfter, op.LateBy > 0 && op.Each && op.Point == CrashAfter:
		v.bad(path+".lateBy", "after the effect, nothing is in flight any more: use point: before")
	case op.Each && op.Effect > 0:
		v.bad(path+".effect", "each already covers every effect: leave this out")
	case !op.Each && op.Effect == 0 && op.Point == CrashBefore:
		v.bad(path+".point", "does not say which effect: add effect or each")
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
	v.selection(path, op.Selection(), isAnnotated)
	if !qualifiedName.MatchString(op.Key) {
		v.bad(path+".key", "%s is not an annotation that Kubernetes accepts", phrase.Quote(op.Key))
	}
}

func (v *validator) noAnnotation(path string, op *AnnotateOp) {
	v.annotation(path, op)
	v.bad(path+".value", "an annotation is removed whatever its value: leave it out")
}

// create checks that there is such an object, and that users make it.
func (v *validator) create(path string, op *CreateOp) {
	kind, _, _ := strings.Cut(op.Object, "/")
	if why := v.vocab.kind(kind).Unmade; why != "" {
		v.bad(path+".object", "%s", why)
		return
	}
	kind = v.object(path+".object", op.Object, isMade)
	switch {
	case kind == "" || v.doc.broken(path+".with"):
	case len(op.With) == 0 && v.vocab.kind(kind).Named == Freely:
		v.bad(path+".with", "the topology has no %s: give its content", kind)
	case len(op.With) > 0 && v.vocab.CheckPatch != nil:
		if err := v.vocab.CheckPatch(kind, op.With); err != nil {
			v.bad(path+".with", "%v", err)
		}
	}
}

func (v *validator) failAPI(path string, op *FailAPIOp) {
	v.controller(path+".controller", op.Controller)
	v.oneOf(path+".verb", "verb", op.Verb, apiVerbs)
	v.oneOf(path+".kind", "kind", op.Kind, v.vocab.kinds(anyKind))
	switch {
	case !slices.Contains(apiCodes, op.Code):
		v.bad(path+".code", "%d: use one of %s", op.Code, strings.Trim(fmt.Sprint(apiCodes), "[]"))
	case op.Code == http.StatusNotFound && !v.vocab.kind(op.Kind).Custom:
		v.bad(path+".code", "only custom resources can be missing entirely: give kind one of %s", strings.Join(v.vocab.kinds(isCustom), ", "))
	}
	if op.Times < 1 {
		v.bad(path+".times", "%d: use at least 1, or leave it out", op.Times)
	}
}

func (v *validator) patch(path string, op *PatchOp) {
	kind := v.selection(path, op.Selection(), isChanged)
	if v.doc.broken(path + ".merge") {
		return
	}
	object, status, err := op.Split()
	switch {
	case err != nil:
		v.bad(path+".merge", "%s where the fields of an object are expected", op.Merge)
	case object == nil && status == nil:
		v.bad(path+".merge", "changes nothing")
	case kind != "" && v.vocab.CheckPatch != nil && !op.Foreign:
		if err := v.vocab.CheckPatch(kind, op.Merge); err != nil {
			v.bad(path+".merge", "%s", phrase.OneLine(err))
		}
	}
}

func (v *validator) addFault(path string, op *FaultOp) {
	v.host(path+".host", op.Host)
	switch {
	case op.Name == "":
		v.bad(path+".name", "is empty: removeFault and the history need it")
	case slices.Contains(v.faults, op.Name):
		v.bad(path+".name", "a fault %s was added before: use another name, so that the history can tell them apart", phrase.Quote(op.Name))
	default:
		v.faults = append(v.faults, op.Name)
	}
	if v.vocab.Fault == nil {
		v.bad(path+".rule", "faults are not supported here")
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
			v.bad(path+".rule", "%s", phrase.OneLine(err))
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
	return v.oneOf(path, "fault", name, v.faults)
}

func (v *validator) removeFault(path string, op *FaultName) {
	path, name := path+".name", op.Name
	if !v.fault(path, name) {
		return
	}
	if slices.Contains(v.ended, name) {
		v.bad(path, "the fault %s has been removed before", phrase.Quote(name))
	}
	v.ended = append(v.ended, name)
}
