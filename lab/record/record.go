// Package record holds a lab's knowledge of its run.
//
// Observers put events in it, each with its own time: [Stream] hands them over in one order. It
// decides when the story begins ([Stream.Await]), and records when the lab itself was too slow for
// a verdict on anything late ([Stream.KeepPulse]). It finds out who wrote each version of an
// object ([Record.Watch]). An [Account] records the processor time of all this.
package record

import (
	"sync"
	"time"

	"github.com/fencelab/fencelab/scenarios/objects"
)

// Record is a lab's knowledge of its run: the events of all observers in one order, who wrote what
// in the API, and what controllers knew and decided.
type Record struct {
	*Stream
	Trace    objects.Trace
	Writers  writers
	Versions versions
	// tasks waits for the observers of the API.
	tasks sync.WaitGroup

	kinds  objects.Kinds
	names  objects.Names
	fields objects.Fields
}

// New is an empty record of a run with these objects, by the clock of the run.
func New(since func() time.Duration, kinds objects.Kinds, names objects.Names, fields objects.Fields) *Record {
	return &Record{Stream: NewStream(since), kinds: kinds, names: names, fields: fields}
}

// Adopt has the record watch these kinds.
func (r *Record) Adopt(kinds objects.Kinds) { r.kinds = kinds }

// Wait returns when no observer of the API is at work any more, after the end of the context that
// they watch with.
func (r *Record) Wait() { r.tasks.Wait() }
