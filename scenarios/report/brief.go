package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// briefLength is how many lines a terminal shows of a run that did not come out as
// expected, below its headline, where at most one deviation led to it.
const briefLength = 14

// Brief is the report for a terminal, 14 lines and one more for each of several deviations: what
// came of the run and why, the events that matter in their order, what was true and what was said
// of the hosts then, and where the rest is. Dir is where the run was saved and replay the command
// that plays it again; both may be empty.
func Brief(o *play.Outcome, dir, replay string) string {
	var head, foot []string
	verdict, reason := o.Verdict()
	if reason != "" {
		head = append(head, phrase.FirstLine(reason))
	}
	if mismatch := o.Meets(); mismatch != "" && mismatch != reason {
		head = append(head, phrase.FirstLine(mismatch))
	}
	for _, note := range o.Notes {
		head = append(head, "note: "+note)
	}
	broken := o.Violation()
	if broken != nil {
		if inv, err := guarantee.Lookup(broken.Invariant); err == nil {
			head = append(head, "claim: "+inv.Claim)
		}
	}
	about := subjectOf(o)
	head = append(head, about.causes(o)...)
	if broken != nil || verdict.Undecided() {
		foot = append(foot, sides(o, about.hosts, about.actors, about.last)...)
	}
	if s := o.Plan.Shrunk; s != nil && s.Divides != "" {
		head = append([]string{s.Divides}, head...)
	}
	if broken == nil && verdict.Undecided() {
		foot = append(foot, list("still in force", scenarios.InForce(o.Plan.Spec.Steps[:o.Steps]))...)
		if idle := o.Injected.Idle; len(idle) > 0 && !strings.Contains(reason, idle[0]) {
			foot = append(foot, list("without effect", idle)...)
		}
	}
	deviating := each(deviationsOf(o.Plan), deviations(o))
	foot = append(foot, deviating...)
	if replay != "" {
		foot = append(foot, "replay: "+replay)
	}
	if dir != "" {
		foot = append(foot, "page: "+filepath.Join(dir, page.Name))
	}
	room := briefLength - len(head) - len(foot) + max(0, len(deviating)-1)
	if broken != nil && broken.Open {
		room-- // what never came needs no further event beside it
	}
	var story []string
	for _, l := range about.landmarks(o, room) {
		mark := " "
		if l.Marked {
			mark = ">"
		}
		story = append(story, fmt.Sprintf("%s %4d %9s  %s", mark, l.Event, history.Seconds(l.at), l.Text))
	}
	lines := slices.Concat(head, story, foot)
	if len(lines) == 0 {
		return ""
	}
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// deviationsOf says what the deviations of a plan are: all that were found, or those that it takes.
func deviationsOf(plan *scenarios.Plan) string {
	switch s := plan.Shrunk; {
	case s == nil:
		return "deviations"
	case s.From == len(plan.Deviations):
		return "deviations, each needed"
	case s.Needed:
		return fmt.Sprintf("deviations, each needed, of %d found", s.From)
	default:
		return fmt.Sprintf("deviations left of %d", s.From)
	}
}

// each is a line for each thing below what they are, or one if there is but one.
func each(what string, things []string) []string {
	if len(things) < 2 {
		return list(what, things)
	}
	lines := []string{what + ":"}
	for _, thing := range things[:min(listed, len(things))] {
		lines = append(lines, "  "+thing)
	}
	if more := len(things) - listed; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

// subject is the topic of a report on a failed run: the hosts and the actors that matter, and the
// last event that does. It is empty for a run that held.
type subject struct {
	hosts, actors []string
	last          int
	broken        *invariant.Violation
}

func subjectOf(o *play.Outcome) subject {
	verdict, _ := o.Verdict()
	switch v := o.Violation(); {
	case v != nil:
		return subject{[]string{v.First.Host, v.Second.Host}, []string{v.First.Actor, v.Second.Actor}, v.Second.Seq, v}
	case !verdict.Undecided():
		return subject{}
	case o.Steps < len(o.Plan.Spec.Steps):
		return subject{hosts: []string{o.Plan.Spec.Steps[o.Steps].When.Host}, last: storyEnd(o)}
	}
	return subject{last: storyEnd(o)}
}

// causes say how the controllers stood where something never came, or came too late.
func (s subject) causes(o *play.Outcome) []string {
	if s.last == 0 || s.broken != nil && !lively(s.broken) {
		return nil
	}
	return causes(o, s.hosts, s.last, causesShown)
}

// waits say of each controller under test what it waits for, where something never came.
func (s subject) waits(o *play.Outcome) (lines []string) {
	if s.last == 0 || s.broken != nil && !lively(s.broken) {
		return nil
	}
	for _, c := range standings(o, s.hosts, s.last) {
		lines = append(lines, c.text)
	}
	return lines
}

// causesShown bounds how many controllers are reported as the cause of a wait.
const causesShown = 3

// lively reports whether a violation is of something that never came, or came too late.
func lively(v *invariant.Violation) bool {
	inv, err := guarantee.Lookup(v.Invariant)
	return err == nil && inv.Liveness
}

// listed bounds how many things of a kind are shown.
const listed = 4

// list is a line of things, or none if there are none.
func list(what string, things []string) []string {
	if len(things) == 0 {
		return nil
	}
	line := what + ": " + strings.Join(things[:min(listed, len(things))], "; ")
	if more := len(things) - listed; more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}
	return []string{line}
}

// Look is the run as one looks at it: event by event, with what was true and what was
// believed.
func Look(o *play.Outcome) (*page.Run, error) {
	run := &page.Run{Events: o.History.Events()}
	for _, a := range o.Artifacts {
		read := map[string]func([]byte) error{page.Requests: run.ReadRequests, page.Trace: run.ReadTrace}[a.Name]
		if read == nil {
			continue
		}
		if err := read(a.Data); err != nil {
			return nil, fmt.Errorf("read %s: %w", a.Name, err)
		}
	}
	return run, nil
}

// sides says of each host what was true of it when an event had just happened, and
// what its BMC, its status and the caches of these actors said.
func sides(o *play.Outcome, hosts, actors []string, seq int) (lines []string) {
	if seq < 1 {
		return nil
	}
	run, err := Look(o)
	if err != nil {
		return []string{"what was believed is not known: " + err.Error()}
	}
	said := page.Moment(run, seq)
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		var facts []string
		for _, fact := range said[host] {
			text := fact.Text
			switch {
			case strings.HasSuffix(fact.Lane, page.Believes) && !slices.Contains(actors, strings.TrimSuffix(fact.Lane, page.Believes)):
				continue
			case fact.Lane == "power", fact.Lane == "workload", fact.Lane == "volume", fact.Lane == "network":
			case strings.HasPrefix(fact.Lane, "fault "):
				text = fact.Lane
			default:
				text = fact.Lane + ": " + text
			}
			facts = append(facts, text)
		}
		if len(facts) > 0 {
			lines = append(lines, fmt.Sprintf("%s at event %d: %s", host, seq, strings.Join(facts, "; ")))
		}
	}
	return lines
}

// weights say which events a reader needs first, to see how it came to the last one.
// What weighs nothing only repeats what others say, or is bookkeeping.
var weights = map[history.Kind]int{
	history.PowerOff: 6, history.PowerOn: 6, history.BootComplete: 6, history.WorkloadStarted: 6, history.WorkloadStopped: 6,
	history.NodeDeleted: 6, history.NodeTakenOver: 4, history.PodDeleted: 6, history.HostReleased: 6, history.WatchdogFired: 6, history.WatchdogDisarmed: 6, history.QuorumLost: 6, history.QuorumRegained: 6, history.EvidenceLost: 6, history.LabStalled: 6, history.HostPaused: 6, history.HostResumed: 6,
	history.VolumeAttached: 5, history.VolumeDetached: 6, history.VolumeMounted: 6, history.VolumeUnmounted: 5, history.VolumeWritten: 5, history.VolumeFenced: 6, history.VolumeUnfenced: 6,
	history.NodeOutOfService: 6, history.NodeInService: 6, history.VolumesInUse: 2, history.DetachAsked: 4, history.StorageFenceAsked: 5, history.StorageUnfenceAsked: 5,
	history.OpApplied: 5, history.Deviated: 5, history.ControllerCrashed: 5, history.AnnotationSet: 5, history.AnnotationRemoved: 5,
	history.MachineDeleting: 5, history.NodeDeleting: 5, history.MachineDeleted: 5, history.BareMetalHostDeleted: 5, history.FenceRequested: 5, history.FenceEnded: 5,
	history.BootStarted: 4, history.DeletionPhase: 4, history.DrainTimeout: 3, history.DetachTimeout: 3, history.Stamped: 2, history.PodTerminating: 4, history.PodProtected: 4, history.PodUnprotected: 3, history.FinalizerAdded: 4, history.FinalizerRemoved: 4, history.NodeCordoned: 4,
	history.NodeNotReady: 4, history.NodeCreated: 4, history.PowerReported: 4, history.FieldIs: 4, history.BMCCommand: 4, history.OnlineWanted: 4,
	history.NodeReady: 3, history.NodeCondition: 3, history.MachineCondition: 3, history.CheckChanged: 4, history.PodBound: 3, history.BMCFault: 3, history.APIFault: 3, history.NodeUncordoned: 3, history.HostConsumer: 3,
	history.ProvisioningState: 3, history.ControllerError: 2, history.ControllerPanicked: 6, history.ControllerWarning: 2, history.ControllerStopping: 5,
	history.LinkCut: 1, history.LinkRestored: 1, history.LinkImpaired: 1, history.PowerError: 1, history.PendingRebootSince: 1, history.LastPoweredOn: 1, history.HeldOffFor: 1,
	history.BootEnded: 0, history.EvidenceRegained: 0, history.NodeLabels: 0, history.NodeTaints: 2, history.NodeAnnotations: 1, history.NodeNetwork: 1, history.SpecChanged: 4, history.MachineNode: 0, history.MachineCreated: 0,
	history.BareMetalHostCreated: 0, history.ControllerStarted: 0, history.ControllerEffect: 0,
	history.RunStarted: 0, history.ScheduleEnded: 0, history.StepOverdue: 0, history.LabRecovered: 0, history.Healed: 0, history.Done: 0,
}

// landmark is an event that says much about how it came to the last one, in words. Those that broke
// the claim are marked.
type landmark struct {
	Event   int     `json:"event"`
	Seconds float64 `json:"atSeconds"`
	Text    string  `json:"text"`
	Marked  bool    `json:"marked,omitempty"`

	at time.Duration
}

// landmarks are the n events of the story up to the last one that say most about how it came to it:
// of the hosts that matter, or of all if none does.
func (s subject) landmarks(o *play.Outcome, n int) (told []landmark) {
	type weighed struct {
		event  history.Event
		weight int
	}
	broken := s.broken
	hosts := slices.DeleteFunc(slices.Clone(s.hosts), func(host string) bool { return host == "" })
	marked := func(e *history.Event) bool {
		return broken != nil && (e.Seq == broken.First.Seq || e.Seq == broken.Second.Seq)
	}
	var all []weighed
	story := false
	faults := map[string]bool{}
	for _, e := range o.History.Events()[:s.last] {
		weight := weights[e.Kind]
		if e.Kind == history.BMCFault || e.Kind == history.APIFault {
			if what := e.Host + " " + e.Object + " " + e.Value; faults[what] {
				weight = 0 // the first time says enough
			} else {
				faults[what] = true
			}
		}
		if broken == nil { // what came last says more than what weighs most
			weight = min(weight, weights[history.NodeCreated])
		}
		if e.Kind == history.Deviated && len(o.Plan.Deviations) > listed {
			weight = 1
		}
		switch {
		case marked(&e):
			weight = 9
		case !story:
			weight = 0
		case e.Host != "" && len(hosts) > 0 && !slices.Contains(hosts, e.Host):
			weight = min(weight, 1)
		}
		story = story || e.Kind == history.RunStarted
		if weight > 0 {
			all = append(all, weighed{e, weight})
		}
	}
	slices.SortStableFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.event.Seq, a.event.Seq))
	})
	all = all[:max(0, min(n, len(all)))]
	slices.SortFunc(all, func(a, b weighed) int { return cmp.Compare(a.event.Seq, b.event.Seq) })
	words := deviated(o)
	for _, l := range all {
		text := withAuthor(&l.event)
		i := slices.IndexFunc(words, func(d deviation) bool { return l.event.Kind == history.Deviated && l.event.Value == d.String() })
		if i >= 0 && words[i].words != "" {
			text = "the schedule deviates: " + words[i].words
		}
		if l.event.Kind == history.NodeDeleted || marked(&l.event) && l.event.Kind.Layer() == history.API { // what happens to a host was decided earlier
			text += decisionBehind(o, &l.event)
		}
		told = append(told, landmark{l.event.Seq, l.event.At.Seconds(), text, marked(&l.event), l.event.At})
	}
	return told
}

// withAuthor describes an event with its author, unless the phrase begins with that.
func withAuthor(e *history.Event) string {
	text := e.Phrase()
	if e.Actor != "" && !strings.HasPrefix(text, e.Actor) {
		text += ", by " + e.Actor
	}
	return text
}
