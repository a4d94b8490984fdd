package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/ci/browser"
	"github.com/fencelab/fencelab/scenarios/campaign"
)

// invocation is one with a scenario of each status, and a search that failed in each way.
func invocation() *campaign.Ledger {
	l := &campaign.Ledger{Backend: "sim", Seed: 7, Strategy: "sweep", Version: "devel"}
	l.Results = []*campaign.Entry{
		{Scenario: "fine", Status: campaign.Passed, Expected: "held"},
		{Scenario: "elsewhere", Status: campaign.Skipped, Reason: "it is for the lab"},
		{Scenario: "vague", Status: campaign.Unknown, Expected: "held", Reason: "step 3 waited in vain"},
		{Scenario: "race", Status: campaign.Failed, Expected: "held", Reason: "3 of 100 schedules were violated", Search: &campaign.Searched{
			Schedules: 100, Of: 100, Held: 96, Violated: 3, Unknown: 1,
			Failures: []campaign.Cluster{
				{Signature: "at-most-one: workload-started worker-1, workload-started worker-2", Guarantee: "at-most-one", Schedules: 2, First: 40},
				{Signature: "node-restored: healed, node-deleted worker-1 by remediation", Guarantee: "node-restored", Missing: true, Schedules: 1, First: 2},
				{Signature: "step 3 waited in vain", Schedules: 1, First: 1},
			},
		}},
	}
	l.Counts.Scenarios, l.Counts.Passed, l.Counts.Failed, l.Counts.Unknown, l.Counts.Skipped = 4, 1, 1, 1, 1
	return l
}

// TestIndex: what is to be looked at comes first, and each kind of failure says what is wrong.
func TestIndex(t *testing.T) {
	data, err := indexOf(invocation(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	order := func(words ...string) {
		at := 0
		for _, word := range words {
			next := strings.Index(string(data[at:]), word)
			if next < 0 {
				t.Errorf("%q is missing, or not behind what comes before it in %q", word, words)
				return
			}
			at += next
		}
	}
	order("2 not as expected</span>")
	order(`<th scope="row">race`, `<th scope="row">vague`, `<th scope="row">fine`, `<th scope="row">elsewhere`)
	order(`>violated</span></td><td>at-most-one`, `>missing</span></td><td>node-restored`, `>unknown</span></td><td>step 3`)
	if hole := regexp.MustCompile(`expected </|by ,|>\s*,`).Find(data); hole != nil {
		t.Errorf("there is a hole at %q", hole)
	}
}

// TestIndexInABrowser: nothing sticks out of the index, and axe finds nothing.
func TestIndexInABrowser(t *testing.T) {
	data, err := indexOf(invocation(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "index.html")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range browser.Schemes {
		t.Run(scheme, func(t *testing.T) {
			b := browser.Open(t, scheme, file)
			for _, width := range []int{1400, 400} {
				b.Resize(width, 900)
				b.Screenshot(scheme + "-" + strconv.Itoa(width))
				if b.Eval(`document.scrollingElement.scrollWidth > innerWidth`) != "false" {
					t.Errorf("at %d pixels the page is wider than the window", width)
				}
				for _, found := range b.Axe("../../.cache/browser") {
					t.Errorf("at %d pixels, %s (%s): %s, for instance %s", width, found.ID, found.Impact, found.Help, found.Nodes[0].HTML)
				}
			}
		})
	}
}
