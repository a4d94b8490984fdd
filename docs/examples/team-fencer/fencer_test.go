package teamfencer

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fencetest"
)

// impatient is how long the first version waited for a power-off.
const impatient = 20 * time.Second

// TestStory: with a BMC that answers in time both versions do well, and this is
// where most test suites end.
func TestStory(t *testing.T) {
	for name, giveUp := range map[string]time.Duration{"impatient": impatient, "patient": 0} {
		t.Run(name, func(t *testing.T) {
			fencetest.Run(t, "story.yaml", fencetest.With(Module(giveUp)))
		})
	}
}

// TestImpatienceIsFound: the sweep finds what the story doesn't show.
func TestImpatienceIsFound(t *testing.T) {
	broken := fencetest.Broken(t, "story.yaml", fencetest.With(Module(impatient)))
	if !slices.Contains(broken, "fenced-before-release") {
		t.Errorf("a fencer that gives up waiting breaks %q, and fenced-before-release should be among them", broken)
	}
}

// TestSweep: whoever waits for as long as it takes holds, whatever is late, fails or
// crashes.
func TestSweep(t *testing.T) {
	fencetest.Sweep(t, "story.yaml", fencetest.With(Module(0)))
}
