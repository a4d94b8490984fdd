package scenarios

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Title is what to call a step.
func (s *Step) Title() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Do != nil:
		return s.Do.String()
	default:
		return "wait for " + s.When.String()
	}
}

// Matches reports whether an event is one that the trigger waits for.
func (t Trigger) Matches(e history.Event) bool {
	return t.Event == string(e.Kind) &&
		matches(t.Host, e.Host) && matches(t.Object, e.Object) && matches(t.Actor, e.Actor) &&
		matches(t.Key, e.Key) && matches(t.Value, e.Value)
}

func matches(want, got string) bool { return want == "" || want == got }

// IsZero reports whether the trigger waits for nothing.
func (t Trigger) IsZero() bool { return reflect.ValueOf(t).IsZero() }

func (t Trigger) String() string {
	if len(t.AllOf) > 0 {
		var all []string
		for _, t := range t.AllOf {
			all = append(all, t.String())
		}
		return strings.Join(all, " and ")
	}
	var b strings.Builder
	b.WriteString(t.Event)
	for _, field := range [...]struct{ name, value string }{
		{"host", t.Host}, {"object", t.Object}, {"actor", t.Actor}, {"key", t.Key}, {"value", t.Value},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, " %s=%s", field.name, field.value)
		}
	}
	if t.Occurrence > 1 {
		fmt.Fprintf(&b, " (occurrence %d)", t.Occurrence)
	}
	return b.String()
}

// String says what the operation does in a few words: "cut worker-1".
func (op Op) String() string {
	on := func(what string, h *HostOp) string { return what + " " + h.Host }
	switch {
	case op.Cut != nil:
		return on("cut", op.Cut)
	case op.Restore != nil:
		return on("restore", op.Restore)
	case op.StopKubelet != nil:
		return on("stop the kubelet of", op.StopKubelet)
	case op.StopFeeding != nil:
		return on("stop feeding the watchdog of", op.StopFeeding)
	case op.IgnoreShutdown != nil:
		return on("ignore shutdown on", op.IgnoreShutdown)
	case op.Pause != nil:
		return on("pause", op.Pause)
	case op.Resume != nil:
		return on("resume", op.Resume)
	case op.PowerLoss != nil:
		return on("power loss of", op.PowerLoss)
	case op.PowerUp != nil:
		return on("power up", op.PowerUp)
	case op.AddFault != nil:
		return fmt.Sprintf("add fault %s to the BMC of %s", op.AddFault.Name, op.AddFault.Host)
	case op.RemoveFault != nil:
		return "remove fault " + op.RemoveFault.Name
	case op.Crash != nil:
		return op.Crash.String()
	case op.StartSecond != nil:
		return "start a second " + op.StartSecond.Controller
	case op.StopSecond != nil:
		return "stop the second " + op.StopSecond.Controller
	case op.PauseController != nil:
		return "pause the controller " + op.PauseController.Controller
	case op.ResumeController != nil:
		return "resume the controller " + op.ResumeController.Controller
	case op.SetClock != nil:
		return fmt.Sprintf("set the clock of %s to %+.1fs", op.SetClock.Controller+op.SetClock.Host, op.SetClock.Offset().Seconds())
	case op.FreezeCache != nil:
		return fmt.Sprintf("freeze %s in the cache of %s", op.FreezeCache.Kind, op.FreezeCache.Controller)
	case op.ThawCache != nil:
		return fmt.Sprintf("thaw %s in the cache of %s", op.ThawCache.Kind, op.ThawCache.Controller)
	case op.Annotate != nil:
		return fmt.Sprintf("annotate %s with %s=%s", op.Annotate.Object, op.Annotate.Key, op.Annotate.Value)
	case op.RemoveAnnotation != nil:
		return fmt.Sprintf("remove annotation %s from %s", op.RemoveAnnotation.Key, op.RemoveAnnotation.Object)
	case op.SetOnline != nil:
		return fmt.Sprintf("set %s online=%t", op.SetOnline.Host, op.SetOnline.Online)
	case op.Patch != nil:
		return fmt.Sprintf("patch %s with %s", op.Patch.Object, op.Patch.Merge)
	case op.Delete != nil:
		return "delete " + op.Delete.Object
	case op.Create != nil:
		return "create " + op.Create.Object
	case op.FailAPI != nil:
		return op.FailAPI.String()
	case op.APIOutage != nil && op.APIOutage.Hang:
		return "API outage: requests hang"
	case op.APIOutage != nil:
		return "API outage"
	case op.APIRestore != nil:
		return "API restored"
	case op.Heal != nil:
		return "heal"
	default:
		return "nothing"
	}
}

func (f *FailAPIOp) String() string {
	count := "every"
	if f.Times > 0 {
		count = fmt.Sprintf("%d times", f.Times)
	}
	words := []string{"fail", count, f.Verb, f.Kind}
	if f.Controller != "" {
		words = append(words, "of", f.Controller)
	}
	return strings.Join(strings.Fields(strings.Join(append(words, fmt.Sprintf("with %d", f.Code)), " ")), " ")
}

func (c *CrashOp) String() string {
	var b strings.Builder
	b.WriteString("crash " + c.Controller)
	switch {
	case c.Each:
		fmt.Fprintf(&b, " %s each of its effects", c.Point)
	case c.Effect > 0:
		fmt.Fprintf(&b, " %s its effect %d", c.Point, c.Effect)
	}
	fmt.Fprintf(&b, ", restart after %s", time.Duration(c.RestartAfter))
	if c.StaleBy > 0 {
		fmt.Fprintf(&b, " with lists %s old", time.Duration(c.StaleBy))
	}
	if c.LateBy > 0 {
		fmt.Fprintf(&b, ", requests execute %s later", time.Duration(c.LateBy))
	}
	return b.String()
}

// kind is what a scenario calls the operation: "addFault".
func (op Op) kind() string {
	v := reflect.ValueOf(op)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// object is what an operation is done to beside a host: a fault, a controller or
// an API object.
func (op Op) object() string {
	switch {
	case op.AddFault != nil:
		return op.AddFault.Name
	case op.RemoveFault != nil:
		return op.RemoveFault.Name
	case op.Crash != nil:
		return op.Crash.Controller
	case op.FreezeCache != nil:
		return op.FreezeCache.Controller
	case op.ThawCache != nil:
		return op.ThawCache.Controller
	case op.Annotate != nil:
		return op.Annotate.Object
	case op.RemoveAnnotation != nil:
		return op.RemoveAnnotation.Object
	case op.Patch != nil:
		return op.Patch.Object
	case op.Delete != nil:
		return op.Delete.Object
	case op.Create != nil:
		return op.Create.Object
	}
	return ""
}

// host is the host that an operation is done to, if it is one.
func (op Op) host() string {
	for _, h := range [...]*HostOp{op.Cut, op.Restore, op.StopKubelet, op.StopFeeding, op.IgnoreShutdown, op.Pause, op.Resume, op.PowerLoss, op.PowerUp} {
		if h != nil {
			return h.Host
		}
	}
	name := func(object string) string {
		_, name, _ := strings.Cut(object, "/")
		return name
	}
	switch {
	case op.AddFault != nil:
		return op.AddFault.Host
	case op.SetOnline != nil:
		return op.SetOnline.Host
	case op.SetClock != nil:
		return op.SetClock.Host
	case op.Annotate != nil:
		return name(op.Annotate.Object)
	case op.RemoveAnnotation != nil:
		return name(op.RemoveAnnotation.Object)
	case op.Patch != nil:
		return name(op.Patch.Object)
	case op.Delete != nil:
		return name(op.Delete.Object)
	case op.Create != nil:
		return name(op.Create.Object)
	default:
		return ""
	}
}
