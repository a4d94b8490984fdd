package invariant

import "github.com/fencelab/fencelab/scenarios/history"

// Fence is the fencing of one host, from API events. The first annotation that asks for it decides
// it, and it is over when the last of them is gone. Any reboot annotation set by the remediation
// controller asks for it, whatever the key.
type Fence struct {
	// Marked says that the Machine is marked for remediation, and asker who did
	// that; asked that the host is asked to go off for it, with the key. Request is the
	// event that last changed that.
	Marked  bool
	asker   string
	Asked   bool
	Key     string
	request history.Event
	// Node is the UID of the Node that represented the host when fencing was
	// decided, or "": there was none, it is gone, or whoever asked withdrew.
	Node string
}

// Active reports whether the host is being fenced.
func (f *Fence) Active() bool { return f.Marked || f.Asked }

// Observe takes in an annotation event of the host. Node is the UID of the Node
// that represents the host now. It reports whether the event decided fencing:
// for the first time, or again for the Node that came after a fenced one.
func (f *Fence) Observe(e *history.Event, node string, roles *Roles) (decided bool) {
	set := e.Kind == history.AnnotationSet
	keyed, _ := RebootRequest(e)
	asks := e.Key == RemediationAnnotation || keyed && Plays(e.Actor, roles.Remediation)
	switch {
	case e.Key == ExternalAnnotation && f.Marked != set:
		if set {
			f.asker = e.Actor
		} else if Same(e.Actor, f.asker) || ByUser(e) {
			f.Node = "" // withdrawn: by the table of seed 002 the Node may stay
		}
		f.Marked = set
	case set && asks && !f.Asked:
		f.request, f.Asked, f.Key = *e, true, e.Key
	case !set && f.Asked && e.Key == f.Key:
		f.request, f.Asked = *e, false
	default:
		return false
	}
	if !set || f.Node != "" || e.Key != ExternalAnnotation && e.Key != f.Key {
		return false
	}
	f.Node = node
	return true
}

// ByUser reports whether the scenario itself changed an object.
func ByUser(e *history.Event) bool {
	return history.IsUser(e.Actor) || e.Actor == string(history.Engine)
}
