package report

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
)

// before is how many events are shown before the one that was asked for.
const before = 10

// CheckUntil says why a replay can't be shown up to an event of this number; 0 asks for none.
func CheckUntil(until int, world string) error {
	switch {
	case until < 0:
		return fmt.Errorf("--until %d: events are numbered from 1", until)
	case until > 0 && world != "sim":
		return fmt.Errorf("--until needs the simulator: only there does a replay have the same event numbers")
	}
	return nil
}

// showUntil shows the events of a run up to a number, and what was true and believed then.
func showUntil(until int, out io.Writer, o *play.Outcome) error {
	if until == 0 {
		return nil
	}
	run, err := Look(o)
	switch {
	case err != nil:
		return exit.Coded(exit.Internal, err)
	case until > len(run.Events):
		return exit.Coded(exit.Invalid, fmt.Errorf("--until %d: the run has %d events", until, len(run.Events)))
	}
	for seq := max(1, until-before); seq <= until; seq++ {
		fmt.Fprintf(out, "%5d %s\n", seq, run.Events[seq-1])
	}
	facts := page.Moment(run, until)
	for _, title := range []string{"true", "believed"} {
		fmt.Fprintf(out, "%s after event %d, at %s\n", title, until, history.Seconds(run.Events[until-1].At))
		for _, group := range slices.Sorted(maps.Keys(facts)) {
			for _, fact := range facts[group] {
				if fact.Believed == (title == "believed") {
					fmt.Fprintf(out, "  %-12s %-22s %s\n", group, fact.Lane, fact.Text)
				}
			}
		}
	}
	return nil
}
