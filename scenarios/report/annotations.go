package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/catalog"
)

// annotationsOf is annotations.txt: workflow commands of GitHub Actions, which mark the story
// that did not come out as expected, at the step that it had come to, with the reason and how to
// play it again.
func annotationsOf(l *campaign.Ledger) []byte {
	var b strings.Builder
	for _, e := range l.Results {
		if e.Status == campaign.Passed || e.Status == campaign.Skipped {
			continue
		}
		message := cmp.Or(e.Reason, string(e.Status))
		for _, run := range e.Runs {
			if run.Replay != "" {
				message += "\nplay it again: " + run.Replay
			}
		}
		where := ""
		if e.File != "" && !strings.HasPrefix(e.File, catalog.Prefix) { // no file of whoever looks
			where = fmt.Sprintf("file=%s,line=%d,", inProperty.Replace(e.File), max(1, e.Line))
		}
		fmt.Fprintf(&b, "::error %stitle=%s::%s\n", where, inProperty.Replace(fmt.Sprintf("%s: %s", e.Scenario, e.Status)), inMessage.Replace(message))
	}
	return []byte(b.String())
}

// What a workflow command has in the place of characters that mean something there.
var (
	inMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	inProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
