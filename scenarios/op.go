package scenarios

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// set are the operations that are asked for: exactly one of an Op that was loaded.
func (op *Op) set() []*operation {
	var set []*operation
	for i := range operations {
		if operations[i].is(op) {
			set = append(set, &operations[i])
		}
	}
	return set
}

// declared is the operation that is asked for, or nil if there is none.
func (op *Op) declared() *operation {
	if set := op.set(); len(set) > 0 {
		return set[0]
	}
	return nil
}

// String says what the operation does in a few words: "cut worker-1".
func (op Op) String() string {
	if o := op.declared(); o != nil {
		return o.text(&op)
	}
	return "nothing"
}

// Name is the operation's name in scenarios: "cut".
func (op *Op) Name() string {
	if o := op.declared(); o != nil {
		return o.name
	}
	return ""
}

// Operations are the names of all operations.
func Operations() []string { return namesOf(all()) }

// Lasting are the names of those that a step can do for good.
func Lasting() []string {
	return namesOf(slices.DeleteFunc(all(), func(o *operation) bool { return !o.mayLast }))
}

// all are the rows of all operations.
func all() []*operation {
	rows := make([]*operation, len(operations))
	for i := range operations {
		rows[i] = &operations[i]
	}
	return rows
}

func namesOf(some []*operation) []string {
	var names []string
	for _, o := range some {
		names = append(names, o.name)
	}
	return names
}

// Names returns the names in scenarios of the requested operations: exactly one for an Op that was
// loaded.
func (op *Op) Names() []string { return namesOf(op.set()) }

// Users returns the users that do something at the API server.
func (op *Op) Users() (users []string) {
	for _, o := range op.set() {
		if user := o.by(op); user != "" {
			users = append(users, user)
		}
	}
	return users
}

// Host is the host that the operation is done to, and Object what else it is done to: a fault,
// a controller, or an API object.
func (op *Op) Host() string { return op.declared().host(op) }

func (op *Op) Object() string { return op.declared().object(op) }

// Check reports what the types don't show of the operation's operands, which are at a path.
func (op *Op) Check(c Checker, path string) { op.declared().check(c, path, op) }

// Begins is the state that the operation begins, as a clause, or "": "worker-1 is cut off". Ends
// are the states that it ends, as [Ended] has it. Orphan is the action that an earlier step must
// have taken to begin such a state, or "": "cut it".
func (op *Op) Begins() string { return op.declared().begins(op).clause }

func (op *Op) Ends() []string { return op.declared().ends(op) }

func (op *Op) Orphan() string { return op.declared().orphan }

// MayLast reports whether a step can do it for good.
func (op *Op) MayLast() bool { return op.declared().mayLast }

// Hinders names the party that the operation holds up in a world with these timings, nil if none.
func (op *Op) Hinders(timings *invariant.Timings) *history.Hindrance {
	return op.declared().hinders(op, timings)
}

// Shows is the event without which the operation, that of a step counted from 1, came to
// nothing; false if it can't.
func (op *Op) Shows(step int) (Injection, bool) {
	if shows := op.declared().shows; shows != nil {
		return shows(op, step), true
	}
	return Injection{}, false
}
