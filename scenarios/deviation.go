package scenarios

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Deviation makes one scheduling step differ from the default. Steps are named
// by who takes them and which of that actor's steps it is, so that a deviation
// keeps its meaning when others are added or taken away.
type Deviation struct {
	// step names the step: ACTOR/CLASS/N, N counted from 1.
	Step string `json:"step"`
	// delay is added to the time at which the step would be taken. Of late,
	// crash-late, crash-stale and stale-list it is how late, or how old; with
	// after, how long the step waits at most.
	Delay Duration `json:"delay,omitzero"`
	// after names another step: this one is taken right after that, if that comes later.
	After string `json:"after,omitempty"`
	// fault is the failure that replaces the step.
	Fault StepFault `json:"fault,omitempty"`
	// deed names the step by its action, as the lab does: ACTOR/VERB OBJECT/N. The simulator finds
	// the step by it, also when its actor takes others than before.
	Deed string `json:"deed,omitempty"`
	// afterDeed names the other step in the same way.
	AfterDeed string `json:"afterDeed,omitempty"`
}

// At is the deviation at another step, whose deed isn't known.
func (d Deviation) At(step string) Deviation {
	d.Step, d.Deed = step, ""
	return d
}

// StepFault is something that goes wrong with one step.
type StepFault string

// The faults of single steps.
const (
	// FaultCrashBefore and FaultCrashAfter kill the actor's process around the
	// step.
	FaultCrashBefore StepFault = "crash-before"
	FaultCrashAfter  StepFault = "crash-after"
	// FaultErrorBefore fails the call, which has no effect; FaultErrorAfter
	// fails it although its effect stands.
	FaultErrorBefore StepFault = "error-before"
	FaultErrorAfter  StepFault = "error-after"
	// FaultIgnore has a BMC accept a command and do nothing.
	FaultIgnore StepFault = "ignore"
	// These fail the call with an HTTP status: 403 and the others. It has no effect.
	FaultForbidden StepFault = "error-403"
	FaultNotFound  StepFault = "error-404"
	FaultConflict  StepFault = "error-409"
	FaultTooMany   StepFault = "error-429"
	FaultInternal  StepFault = "error-500"
	// FaultLate has the client of a request give up on it, which is executed later
	// all the same; FaultCrashLate has the client die instead. What the request
	// demands is checked when it is executed.
	FaultLate      StepFault = "late"
	FaultCrashLate StepFault = "crash-late"
	// FaultStaleList has a process that starts fill its caches from an API server
	// that is behind; FaultCrashStale kills it before the step, for such a start.
	FaultStaleList  StepFault = "stale-list"
	FaultCrashStale StepFault = "crash-stale"
	// FaultRelist has a cache skip to the present state: what lies between is
	// never seen.
	FaultRelist StepFault = "relist"
)

// stepFaults are all faults of single steps: what each holds up, which is something that had
// been decided, for as long as the fault's extent, or nothing; whether its actor tries
// again what has failed, which one that has just started doesn't know of; a fault that is
// less of the same; the kind of trouble; and what happens, in words. A list that is old is no
// excuse: who acts can read.
var stepFaults = []stepFault{
	{FaultCrashBefore, false, false, FaultErrorBefore, died, "ACTOR died before its DEED"},
	{FaultCrashAfter, false, false, FaultErrorAfter, died, "ACTOR died right after its DEED"},
	{FaultCrashLate, true, false, FaultLate, died, "ACTOR died as it sent its DEED, which was carried out BY later"},
	{FaultCrashStale, false, false, FaultCrashBefore, died, "ACTOR died before its DEED, and started again with caches BY old"},
	{FaultErrorBefore, false, true, "", failed, "ACTOR's DEED failed, and nothing was done"},
	{FaultErrorAfter, false, true, "", failed, "ACTOR's DEED was carried out, and ACTOR was told that it failed"},
	{FaultLate, true, true, "", late, "ACTOR gave up on its DEED, which was carried out BY later"},
	{FaultForbidden, false, true, "", failed, "ACTOR's DEED was answered 403 Forbidden"},
	{FaultNotFound, false, true, "", failed, "ACTOR's DEED was answered 404 Not Found"},
	{FaultConflict, false, true, "", failed, "ACTOR's DEED was answered 409 Conflict"},
	{FaultTooMany, false, true, "", failed, "ACTOR's DEED was answered 429 Too Many Requests"},
	{FaultInternal, false, true, "", failed, "ACTOR's DEED was answered 500 Internal Server Error"},
	{FaultIgnore, false, true, "", ignored, "the BMC accepted ACTOR's DEED and did nothing"},
	{FaultRelist, false, false, "", skipped, "ACTOR's cache skipped to the present in place of its DEED"},
	{FaultStaleList, false, false, "", stale, "ACTOR started with caches BY old"},
}

// delayed is the sentence for a delay without a fault, and waited for a wait without one.
const (
	delayed = "ACTOR's DEED came BY late"
	waited  = "ACTOR's DEED came only after OTHER"
)

type stepFault struct {
	fault        StepFault
	holds, fails bool
	lesser       StepFault
	kind, told   string
}

// row returns what there is to know of a fault, or nil if it is none of a single step.
func (f StepFault) row() *stepFault {
	for i := range stepFaults {
		if stepFaults[i].fault == f {
			return &stepFaults[i]
		}
	}
	return nil
}

// The kinds of trouble that a step can have, of whoever takes it.
const (
	late    = "WHO was late"
	died    = "WHO died"
	failed  = "a request of WHO failed"
	ignored = "the BMC ignored WHO"
	skipped = "WHO skipped news"
	stale   = "WHO began with old news"
)

// anyOf is the sentence for all faults of a kind that a step can have, where there are several.
var anyOf = map[string]string{failed: "ACTOR's DEED failed with any error"}

// nouns say what the verbs of deeds do to their object, or alone. Those above the line pass a gate,
// and the others happen in the simulator, within a process or in the world.
var nouns = map[string]string{
	"get": "read of OBJECT", "list": "list of OBJECT", "read": "question to OBJECT", "create": "creation of OBJECT", "update": "update of OBJECT",
	"patch": "patch of OBJECT", "apply": "patch of OBJECT", "delete": "deletion of OBJECT", "deletecollection": "deletion of OBJECT", "evict": "eviction of OBJECT", "bind": "binding of OBJECT",
	"bmc": "command OBJECT", "deliver": "news of OBJECT", "start": "start",

	"register": "registration of OBJECT", "renew": "renewal of the Lease of OBJECT", "sync": "look at its Pods", "report": "report of its Pods",
	"elect": "turn in the election of OBJECT", "take": "next turn", "add": "timer for OBJECT", "step": "next look", "give up": "patience with OBJECT",
	"answer": "timer", "ask": "question to OBJECT", "feed": "feeding of the watchdog", "reboot": "reset of OBJECT", "stop": "stop of OBJECT",
	"attach": "attachment of OBJECT", "detach": "detachment of OBJECT", "mount": "mount of OBJECT", "unmount": "unmount of OBJECT", "write": "write to OBJECT",
	"fence": "fence at OBJECT", "unfence": "end of the fence at OBJECT",
	"power on": "power-on", "force off": "power-off", "shut down": "shutdown", "boot": "boot", "reset": "reset by the watchdog",
}

// Tell says what a deviation did, in words: who took the step, and what it does, as [Deed] has it.
// Other is the step that it waited for, in words.
func (d Deviation) Tell(actor, does, other string) string {
	return d.tell(actor, nounOf(does), other, time.Duration(d.Delay).String())
}

func (d Deviation) tell(actor, deed, other, by string) string {
	told := delayed
	if d.After != "" {
		told = waited
	}
	if row := d.Fault.row(); row != nil {
		switch told = row.told; {
		case d.After != "":
			told += ", after OTHER"
		case d.Delay > 0 && !d.Fault.HasExtent():
			told += ", BY late"
		}
	}
	return strings.NewReplacer("ACTOR", actor, "DEED", deed, "BY", by, "OTHER", cmp.Or(other, d.After)).Replace(told)
}

// TellAny says what deviations have in common that differ from this one in their faults, in the
// step of this deed that they concern, as which says, and in their delays, as by says. All says
// that the step can have no other fault of the kind. The deed is as [Possessive] has it.
func (d Deviation) TellAny(deed, other, which, by string, faults []StepFault, all bool) string {
	actor, deed, _ := strings.Cut(deed, "'s ")
	if which != "" {
		deed += " (" + which + ")"
	}
	if row := d.Fault.row(); row != nil && all && len(faults) > 1 {
		if any, ok := anyOf[row.kind]; ok {
			return strings.NewReplacer("ACTOR", actor, "DEED", deed).Replace(any)
		}
	}
	var told []string
	for _, fault := range faults {
		one := d
		one.Fault = fault
		text := one.tell(actor, deed, other, by)
		if len(told) > 0 {
			text = strings.TrimPrefix(text, actor+"'s "+deed+" ")
		}
		told = append(told, text)
	}
	return strings.Join(told, " or ")
}

// Kin returns the faults of the same kind as this deviation's, which has one, that have no extent.
func (d Deviation) Kin(faults []StepFault) (kin []StepFault) {
	for _, fault := range faults {
		if other := (Deviation{Step: d.Step, Fault: fault}); other.Cause() == d.Cause() && !fault.HasExtent() {
			kin = append(kin, fault)
		}
	}
	return kin
}

// Possessive is a step as a noun: "reboot's patch of BareMetalHost/worker-1".
func Possessive(actor, does string) string { return actor + "'s " + nounOf(does) }

// nounOf turns the action of a step into a noun.
func nounOf(does string) string {
	verb, object := does, ""
	for known := range nouns { // order does not matter: a verb may have a space, and no other begins with it and one
		if rest, ok := strings.CutPrefix(does, known+" "); ok {
			verb, object = known, rest
		}
	}
	deed := verb + " of OBJECT"
	if noun, ok := nouns[verb]; ok {
		deed = noun
	}
	return strings.ReplaceAll(deed, "OBJECT", object)
}

// Lesser are deviations of the same step that are slighter, the slightest first: a lesser
// fault, a fault or its delay alone, or the delays of these that are shorter. An order is as
// slight as it can be.
func (d Deviation) Lesser(delays []time.Duration) []Deviation {
	var lesser []Deviation
	add := func(fault StepFault, delay Duration) {
		lesser = append(lesser, Deviation{Step: d.Step, Fault: fault, Delay: delay, Deed: d.Deed})
	}
	if d.After != "" {
		if d.Fault != "" {
			fault, order := Deviation{Step: d.Step, Fault: d.Fault, Deed: d.Deed}, d
			order.Fault = ""
			lesser = append(lesser, fault, order)
		}
		return lesser
	}
	if row := d.Fault.row(); row != nil {
		if less := row.lesser; less.HasExtent() == d.Fault.HasExtent() && less != "" {
			add(less, d.Delay)
		} else if less != "" {
			add(less, 0)
		}
		if d.Delay > 0 && !d.Fault.HasExtent() {
			add(d.Fault, 0)
			add("", d.Delay)
		}
	}
	for _, delay := range delays {
		if delay < time.Duration(d.Delay) {
			add(d.Fault, Duration(delay))
		}
	}
	return lesser
}

// StepFaults are all faults of single steps.
func StepFaults() []StepFault {
	faults := make([]StepFault, len(stepFaults))
	for i := range stepFaults {
		faults[i] = stepFaults[i].fault
	}
	return faults
}

// Cause says who has which kind of trouble: "reboot was late". It leaves out by how much and at
// which of the steps, since a mistake shows at several of them. A cache has troubles of its own.
func (d Deviation) Cause() string {
	who, rest, _ := strings.Cut(d.Step, "/")
	if strings.HasPrefix(rest, "deliver") {
		process, kind, _ := strings.Cut(who, ".")
		who = strings.TrimSuffix(process+"'s cache of "+kind, " of ")
	}
	kind := late
	if row := d.Fault.row(); row != nil {
		kind = row.kind
	}
	return strings.ReplaceAll(kind, "WHO", who)
}

// Brings reports whether this deviation, or one that is slighter, has a cause.
func (d Deviation) Brings(cause string) bool {
	return d.Cause() == cause || slices.ContainsFunc(d.Lesser(nil), func(less Deviation) bool { return less.Brings(cause) })
}

// clientPatience is how long clients wait at least for an answer, before they try again.
const clientPatience = 5 * time.Second

// Manner is the part that a step has in the work of its process.
type Manner struct {
	// Sent says that the step says something that had been decided before.
	Sent bool
	// GivesUp says that a request fails by it, which is tried again after a while: a client has
	// waited long enough.
	GivesUp bool
}

// fails reports whether time is lost beyond a step that came late: a request has failed.
func (m Manner) fails(late time.Duration) bool {
	return m.Sent && late > clientPatience || m.GivesUp && late > 0
}

// Hinders returns the hindrance of a party's step that deviates and had to come by later.
func (d Deviation) Hinders(party string, later time.Duration, m Manner) *history.Hindrance {
	h := &history.Hindrance{Party: party, After: later}
	row := d.Fault.row()
	h.Fails = row != nil && row.fails || row == nil && m.fails(time.Duration(d.Delay))
	if !d.Fault.HasExtent() {
		h.For, h.Decided = time.Duration(d.Delay), m.Sent && d.Delay > 0
		return h
	}
	if h.Decided = row.holds; h.Decided {
		h.For = time.Duration(d.Delay)
	}
	return h
}

// Waits returns the hindrance of a party whose step waits for another one, and would have come by
// later. It ends with an event that [Deviation.Came] describes.
func (d Deviation) Waits(party string, later time.Duration, m Manner) *history.Hindrance {
	return &history.Hindrance{Party: party, Name: history.WaitOf(d.Step), After: later, Decided: m.Sent}
}

// Came returns the hindrance of a party whose step has come after it has waited for so long: what
// is lost beyond the wait.
func (d Deviation) Came(party string, after time.Duration, m Manner) *history.Hindrance {
	h := Deviation{Fault: d.Fault}.Hinders(party, 0, m)
	h.Fails = h.Fails || m.fails(after)
	return h
}

// Kills reports whether the fault ends a process.
func (f StepFault) Kills() bool {
	row := f.row()
	return row != nil && row.kind == died
}

// Status returns the HTTP status that the fault answers with, or 0.
func (f StepFault) Status() int {
	switch f {
	case FaultForbidden:
		return http.StatusForbidden
	case FaultNotFound:
		return http.StatusNotFound
	case FaultConflict:
		return http.StatusConflict
	case FaultTooMany:
		return http.StatusTooManyRequests
	case FaultInternal:
		return http.StatusInternalServerError
	}
	return 0
}

// HasExtent reports whether a deviation's delay says how late or how old the
// fault makes something, instead of when the step is taken. Without one the fault
// would be another, or none.
func (f StepFault) HasExtent() bool {
	return f == FaultLate || f == FaultCrashLate || f == FaultStaleList || f == FaultCrashStale
}

// Waiting says that the step waits for another one.
func (d Deviation) Waiting() string { return d.Step + " waits for " + d.After }

func (d Deviation) String() string {
	switch {
	case d.After != "" && d.Fault == "":
		return fmt.Sprintf("%s after %s", d.Step, d.After)
	case d.After != "":
		return fmt.Sprintf("%s %s, after %s", d.Step, d.Fault, d.After)
	case d.Fault.HasExtent():
		return fmt.Sprintf("%s %s by %s", d.Step, d.Fault, time.Duration(d.Delay))
	case d.Fault == "":
		return fmt.Sprintf("%s delayed by %s", d.Step, time.Duration(d.Delay))
	case d.Delay == 0:
		return fmt.Sprintf("%s %s", d.Step, d.Fault)
	default:
		return fmt.Sprintf("%s %s, delayed by %s", d.Step, d.Fault, time.Duration(d.Delay))
	}
}
