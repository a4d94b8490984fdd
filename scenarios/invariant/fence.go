package invariant

import "github.com/fencelab/fencelab/scenarios/history"

// fence is the fencing of one host, from API events: decided by the first
// annotation that asks for it, over when the last of them is gone. Whatever its key, a
// reboot annotation asks for it that whoever plays the remediation controller has set.
type fence struct {
	// marked says that the Machine is marked for remediation, and asker who did
	// that; asked that the host is asked to go off for it, with the key. Request is the
	// event that last changed that.
	marked  bool
	asker   string
	asked   bool
	key     string
	request history.Event
	// node is the UID of the Node that represented the host when fencing was
	// decided, or "": there was none, it is gone, or whoever asked withdrew.
	node string
}

func (f *fence) active() bool { return f.marked || f.asked }

// observe takes in an annotation event of the host. Node is the UID of the Node
// that represents the host now. It reports whether the event decided fencing:
// for the first time, or again for the Node that came after a fenced one.
func (f *fence) observe(e *history.Event, node string, roles *Roles) (decided bool) {
	set := e.Kind == history.AnnotationSet
	keyed, _ := rebootRequest(e)
	asks := e.Key == remediationAnnotation || keyed && plays(e.Actor, roles.Remediation)
	switch {
	case e.Key == externalAnnotation && f.marked != set:
		if set {
			f.asker = e.Actor
		} else if same(e.Actor, f.asker) || byUser(e) {
			f.node = "" // withdrawn: by the table of seed 002 the Node may stay
		}
		f.marked = set
	case set && asks && !f.asked:
		f.request, f.asked, f.key = *e, true, e.Key
	case !set && f.asked && e.Key == f.key:
		f.request, f.asked = *e, false
	default:
		return false
	}
	if !set || f.node != "" || e.Key != externalAnnotation && e.Key != f.key {
		return false
	}
	f.node = node
	return true
}
