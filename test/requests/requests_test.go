package requests_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/test/requests"
)

const story = "testdata/story.yaml"

// twice is a claim in code: no host is powered off twice.
func twice(events []history.Event) error {
	off := make(map[string]int)
	for _, e := range events {
		if off[e.Host] += 1; e.Kind != history.PowerOff {
			off[e.Host]--
		} else if off[e.Host] > 1 {
			return fencetest.Breach(e, fmt.Sprintf("%s is off for the second time", e.Host))
		}
	}
	return nil
}

// spared is a claim in code: nothing happens to the other host.
func spared(events []history.Event) error {
	for _, e := range events {
		if e.Kind == history.PowerOff && e.Host != "worker-1" {
			return fencetest.Breach(e, e.Host+" is off")
		}
	}
	return nil
}

// TestRight: a fencer that notes each step before the next is right in every schedule, also by the
// claims of the story and of this test.
func TestRight(t *testing.T) {
	fencetest.Sweep(t, story, fencetest.With(requests.Module(requests.Mistakes{})), fencetest.Claim("spared", spared), fencetest.Strategy("sweep", 400))
}

// TestMistakes: each is found, by the description of the kind, and without that by a claim in code.
func TestMistakes(t *testing.T) {
	for _, row := range []struct {
		name  string
		wrong requests.Mistakes
		want  string
	}{
		{"forgets", requests.Mistakes{Forgets: true}, "one-fencing-per-request"},
		{"hurries", requests.Mistakes{Hurries: true}, "one-fencing-per-request"},
		{"forgets, and is not described,", requests.Mistakes{Forgets: true}, "off-once"},
	} {
		module := requests.Module(row.wrong)
		if row.want == "off-once" {
			module.Requests = nil
		}
		if broken := fencetest.Broken(t, story, fencetest.With(module), fencetest.Claim("off-once", twice), fencetest.Strategy("sweep", 400)); !slices.Contains(broken, row.want) {
			t.Errorf("a fencer that %s breaks %q, and %s should be among them", row.name, broken, row.want)
		}
	}
}

// TestOverlooked: of a kind that nothing is said of, the report says that nothing looks at it.
func TestOverlooked(t *testing.T) {
	module := requests.Module(requests.Mistakes{})
	module.Requests = nil
	const want = "nothing here looks at FenceRequest: if it asks for a host to be fenced, say so in spec.requests"
	for _, o := range fencetest.Play(t, story, fencetest.With(module)) {
		if !slices.Contains(o.Notes, want) {
			t.Errorf("the run has the notes %q, without %q", o.Notes, want)
		}
	}
	for _, o := range fencetest.Play(t, story, fencetest.With(requests.Module(requests.Mistakes{}))) {
		if len(o.Notes) > 0 {
			t.Errorf("the run has the notes %q, though its kind is described", o.Notes)
		}
	}
}
