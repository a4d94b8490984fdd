package requests_test

import (
	"slices"
	"testing"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/test/requests"
)

const story = "testdata/story.yaml"

// spared is a claim in code: a host is never powered off. A bystander may be once its Node is sick.
func spared(host string, bystander bool) func([]history.Event) error {
	return func(events []history.Event) error {
		sick := false // a schedule may keep the Lease of any Node from being renewed
		for _, e := range events {
			sick = sick || e.Kind == history.NodeNotReady && e.Host == host
			if e.Kind == history.PowerOff && e.Host == host && !(sick && bystander) {
				return fencetest.Breach(e, host+" is off")
			}
		}
		return nil
	}
}

// TestRight: a fencer that notes each step before the next is right in every schedule, also by the
// claims of the story and of this test.
func TestRight(t *testing.T) {
	fencetest.Sweep(t, story, fencetest.With(requests.Module(requests.Mistakes{})), fencetest.Claim("spared", spared("worker-2", true)), fencetest.Strategy("sweep", 400))
}

// TestMistakes: each is found by the description of the kind.
func TestMistakes(t *testing.T) {
	for name, wrong := range map[string]requests.Mistakes{"forgets": {Forgets: true}, "hurries": {Hurries: true}} {
		const want = "one-fencing-per-request"
		if broken := fencetest.Broken(t, story, fencetest.With(requests.Module(wrong)), fencetest.Strategy("sweep", 400)); !slices.Contains(broken, want) {
			t.Errorf("a fencer that %s breaks %q, and %s should be among them", name, broken, want)
		}
	}
}

// TestOldNews: a watcher that goes by its cache fences a host whose Lease is fresh, once the news
// of it are late. The claim of the story says so, and nothing of one that reads the Lease.
func TestOldNews(t *testing.T) {
	for want, wrong := range map[string]requests.Mistakes{"": {}, "as-told": {Trusts: true}} {
		broken := fencetest.Broken(t, "testdata/fresh.yaml", fencetest.With(requests.Module(wrong)), fencetest.Strategy("sweep", 60))
		if want == "" && len(broken) > 0 || want != "" && !slices.Contains(broken, want) {
			t.Errorf("%+v breaks %q, want %q", wrong, broken, want)
		}
	}
}

// TestCordon: a fencer that takes back the cordon of a user is found without any deviation.
func TestCordon(t *testing.T) {
	for want, wrong := range map[string]requests.Mistakes{"": {}, "own-annotations-only": {Uncordons: true}} {
		broken := fencetest.Broken(t, "testdata/cordoned.yaml", fencetest.With(requests.Module(wrong)), fencetest.Strategy("sweep", 1))
		if want == "" && len(broken) > 0 || want != "" && !slices.Contains(broken, want) {
			t.Errorf("%+v breaks %q, want %q", wrong, broken, want)
		}
	}
}

// TestMarks: an object that marks a host is judged as the mark of its Machine is, by the condition
// of its Node. Whoever waits for that is right; whoever goes by the Lease alone is found.
func TestMarks(t *testing.T) {
	for name, wrong := range map[string]requests.Mistakes{"": {Minds: true}, "no-false-fence": {}, "no-remediation-storm": {Minds: true, Forgets: true}} {
		module := requests.Module(wrong)
		module.Requests = map[string]controllers.Request{"FenceRequest": {Marks: "spec.node", Done: "status.phase=Done"}}
		broken := fencetest.Broken(t, "testdata/marked.yaml", fencetest.With(module), fencetest.Strategy("sweep", 400))
		if name == "" && len(broken) > 0 || name != "" && !slices.Contains(broken, name) {
			t.Errorf("%+v breaks %q, want %q", wrong, broken, name)
		}
	}
}

// TestClaim: a claim in code is broken like a guarantee, by its name.
func TestClaim(t *testing.T) {
	broken := fencetest.Broken(t, story, fencetest.With(requests.Module(requests.Mistakes{})), fencetest.Claim("spared", spared("worker-1", false)), fencetest.Strategy("sweep", 3))
	if !slices.Contains(broken, "spared") {
		t.Errorf("a host was powered off, and %q are broken", broken)
	}
}

// TestOverlooked: of a kind that nothing is said of, the report says that nothing looks at it.
func TestOverlooked(t *testing.T) {
	module := requests.Module(requests.Mistakes{})
	module.Requests = nil
	const want = "nothing here looks at FenceRequest: if it asks for a host to be fenced, marks or releases one, say so in spec.requests"
	for _, o := range fencetest.Play(t, story, fencetest.With(module)) {
		if !slices.Contains(o.Notes, want) {
			t.Errorf("the run has the notes %q, without %q", o.Notes, want)
		}
	}
	for _, o := range fencetest.Play(t, "testdata/described.yaml", fencetest.With(module)) {
		if len(o.Notes) > 0 {
			t.Errorf("the run has the notes %q, though its story describes the kind", o.Notes)
		}
	}
	for _, o := range fencetest.Play(t, story, fencetest.With(requests.Module(requests.Mistakes{}))) {
		if len(o.Notes) > 0 {
			t.Errorf("the run has the notes %q, though its kind is described", o.Notes)
		}
	}
}
