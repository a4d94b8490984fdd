package lab

import (
	"sync"

	"github.com/fencelab/fencelab/scenarios"
)

// refusals are the failAPI operations in force: requests of controllers that are
// answered before they reach the API server.
type refusals struct {
	mu  sync.Mutex
	ops []*refusal
}

type refusal struct {
	scenarios.FailAPIOp
	left int // how often it will still be; less than 0 is for ever
}

func (r *refusals) add(op *scenarios.FailAPIOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := -1
	if op.Times > 0 {
		left = op.Times
	}
	r.ops = append(r.ops, &refusal{*op, left})
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = nil
}

// code returns the HTTP status that a request is refused with, or 0.
func (r *refusals) code(controller, verb, kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := func(want, got string) bool { return want == "" || want == got }
	for _, op := range r.ops {
		if op.left != 0 && is(op.Controller, controller) && is(op.Verb, verb) && is(op.Kind, kind) {
			op.left--
			return op.Code
		}
	}
	return 0
}
