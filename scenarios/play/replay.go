package play

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Different says how the history of a replay differs from that which the plan was
// saved with.
type Different struct {
	// Reason says what differs, and why as far as that is known.
	Reason string
	// Plan says that it is the plan's fault: it comes from another version, names a deed that isn't
	// done, or its digest is not that of the history saved with it.
	Plan bool
}

func (d *Different) Error() string { return d.Reason }

// Replayed compares the history of a replay with the digest of its plan, and with the
// history that was saved beside it, if it was. A plan without a digest fits any. The
// error is a [Different].
func (o *Outcome) Replayed(saved string) error {
	plan, now := o.Plan, o.History
	if plan.Digest == "" || now.Digest() == plan.Digest {
		return nil
	}
	d := &Different{Reason: fmt.Sprintf("the history came out differently (digest %s, was %s)", now.Digest(), plan.Digest)}
	if plan.Version != o.Version {
		d.Plan = true
		d.Reason += fmt.Sprintf(": the plan was saved by fencelab %s, and this is %s", cmp.Or(plan.Version, "of an unknown version"), o.Version)
	}
	switch landed := !slices.ContainsFunc(plan.Deviations, func(d scenarios.Deviation) bool { return d.Deed == "" }); {
	case len(o.Injected.Idle) > 0:
		d.Plan = true
		d.Reason += ": " + o.Injected.Idle[0]
	case landed && len(plan.Deviations) > 0:
		d.Reason += ": each deviation landed on its deed all the same"
	}
	f, err := os.Open(saved)
	if errors.Is(err, os.ErrNotExist) {
		return d
	}
	var before *history.History
	if err == nil {
		defer f.Close()
		before, err = history.Read(f)
	}
	if err != nil {
		return &Different{fmt.Sprintf("%s; %s: %v", d.Reason, saved, err), true}
	}
	at := history.Diff(before, now)
	if at < 0 {
		return &Different{fmt.Sprintf("%s: the plan's digest is not that of %s, which came out as before", d.Reason, saved), true}
	}
	d.Reason += fmt.Sprintf(":\nevent %d was %s\nnow it is   %s", at+1, lineOf(before, at), lineOf(now, at))
	return d
}

// lineOf is an event of a history as a report shows it.
func lineOf(h *history.History, i int) string {
	if i < h.Len() {
		return h.Events()[i].String()
	}
	return "(the end)"
}
