package campaign

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestWithout: exactly the needed elements remain, in their order, however they are spread. It
// takes far fewer questions than there are subsets.
func TestWithout(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + random.IntN(200)
		var parts, needed []int
		for i := range n {
			if parts = append(parts, i); random.IntN(n) < 3 {
				needed = append(needed, i)
			}
		}
		asked := 0
		first := firstBy(func(candidate []int) bool {
			asked++
			return !slices.ContainsFunc(needed, func(part int) bool { return !slices.Contains(candidate, part) })
		})
		if left := without(parts, first); !slices.Equal(left, needed) {
			t.Fatalf("of %d parts %v are needed, left are %v", n, needed, left)
		}
		if most := 40 * (2 + len(needed)); asked > most {
			t.Errorf("of %d parts %v are needed: it took %d questions, want at most %d", n, needed, asked, most)
		}
	}
}

// firstBy returns a function that says which candidate is the first that fails, or -1 if none does.
func firstBy[T any](fails func([]T) bool) func(iter.Seq[[]T]) int {
	return func(candidates iter.Seq[[]T]) int {
		i := 0
		for candidate := range candidates {
			if fails(candidate) {
				return i
			}
			i++
		}
		return -1
	}
}

// TestWithoutTwoWays has two ways to fail: what is left is one of them, and no part of it can go.
func TestWithoutTwoWays(t *testing.T) {
	fails := func(parts []int) bool {
		has := func(part int) bool { return slices.Contains(parts, part) }
		return has(3) && has(17) || has(9) && !has(17)
	}
	left := without([]int{1, 3, 5, 9, 17, 20}, firstBy(fails))
	if !slices.Equal(left, []int{9}) && !slices.Equal(left, []int{3, 17}) {
		t.Errorf("left are %v", left)
	}
}

// TestRenumbered: what was needed only so that the number of another deviation came true goes, and
// that one gets the number that it has without.
func TestRenumbered(t *testing.T) {
	// The 30th request of remediation matters. Each error before it makes one more.
	fails := func(deviations []scenarios.Deviation) bool {
		matters := 30
		for _, d := range deviations {
			if strings.HasPrefix(d.Step, "remediation/api/") && d.Fault == scenarios.FaultInternal {
				matters++
			}
		}
		has := func(d scenarios.Deviation) bool { return slices.Contains(deviations, d) }
		return has(scenarios.Deviation{Step: fmt.Sprintf("remediation/api/%d", matters), Fault: scenarios.FaultForbidden}) &&
			has(scenarios.Deviation{Step: "reboot/work/3", Delay: scenarios.Duration(time.Minute)})
	}
	var found []scenarios.Deviation
	for n := range 5 {
		found = append(found, scenarios.Deviation{Step: fmt.Sprintf("remediation/api/%d", 2*n+1), Fault: scenarios.FaultInternal})
	}
	found = append(found, scenarios.Deviation{Step: "reboot/work/3", Delay: scenarios.Duration(time.Minute)}, scenarios.Deviation{Step: "remediation/api/35", Fault: scenarios.FaultForbidden})
	if !fails(found) {
		t.Fatal("what was found doesn't fail")
	}
	left, fewer := renumbered(found, firstBy(fails))
	want := []scenarios.Deviation{found[5], {Step: "remediation/api/30", Fault: scenarios.FaultForbidden}}
	if !fewer || !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	// Neither of two that matter can stand alone: what is needed only for their numbers goes one by
	// one.
	both := func(deviations []scenarios.Deviation) bool {
		retried := 0
		for _, d := range deviations {
			if d.Fault == scenarios.FaultInternal {
				retried += 2
			}
		}
		for _, n := range []int{10, 20} {
			if !slices.Contains(deviations, scenarios.Deviation{Step: fmt.Sprintf("reboot/bmc/%d", n+retried), Fault: scenarios.FaultForbidden}) {
				return false
			}
		}
		return true
	}
	found = []scenarios.Deviation{
		{Step: "reboot/bmc/1", Fault: scenarios.FaultInternal}, {Step: "reboot/bmc/3", Fault: scenarios.FaultInternal},
		{Step: "reboot/bmc/14", Fault: scenarios.FaultForbidden}, {Step: "reboot/bmc/24", Fault: scenarios.FaultForbidden},
	}
	for range 2 {
		found, _ = renumbered(found, firstBy(both))
	}
	if len(found) != 2 || !both(found) {
		t.Errorf("left are %v", found)
	}
}

// cluttered plays schedules that fail if a request is late by 40 s at least and a crash comes with
// it: the workers may hand their results over in any order, and may still have some of the search.
type cluttered struct {
	random  *rand.Rand
	waiting []Schedule
	// stops is after how many schedules the workers do; 0 is never.
	stops, played int
	most          int
}

func (c *cluttered) Give(s Schedule) {
	c.waiting = append(c.waiting, s)
	c.most = max(c.most, len(c.waiting))
}

func (c *cluttered) Take() (Result, bool) {
	if c.played++; c.stops > 0 && c.played > c.stops {
		return Result{}, false
	}
	at := c.random.IntN(len(c.waiting))
	s := c.waiting[at]
	c.waiting = slices.Delete(c.waiting, at, at+1)
	r := Result{Number: s.Number, Variant: s.Variant, Verdict: invariant.Held}
	var late, crash bool
	for _, d := range s.Deviations {
		late = late || d.Step == "reboot/api/16" && time.Duration(d.Delay) >= 40*time.Second
		crash = crash || d.Step == "reboot/api/3" && d.Fault != ""
	}
	if late && crash {
		r.Verdict, r.Invariant, r.Signature = invariant.Violated, "at-most-one", "at-most-one: a, b"
	}
	return r, true
}

// TestShrink: the schedule that is left is the same whatever the workers do, and the tally is as it
// was.
func TestShrink(t *testing.T) {
	var found []scenarios.Deviation
	for i := range 30 {
		found = append(found, scenarios.Deviation{Step: fmt.Sprintf("reboot/api/%d", i+1), Delay: scenarios.Duration(70 * time.Second)})
	}
	found[2].Fault = scenarios.FaultCrashAfter
	want := []scenarios.Deviation{
		{Step: "reboot/api/3", Fault: scenarios.FaultErrorAfter},
		{Step: "reboot/api/16", Delay: scenarios.Duration(time.Minute)},
	}
	shrink := func(order uint64, stops int) (Schedule, *cluttered) {
		workers := &cluttered{random: rand.New(rand.NewPCG(order, 0)), stops: stops}
		s := &Search{Story: &Story{Plan: new(scenarios.Plan)}, Total: 1}
		for range 10 {
			workers.Give(Schedule{Number: 4})
			s.waiting++
		}
		var tally Tally
		tally.Add(Schedule{Number: 7, Seed: 3, Deviations: found}, Result{Number: 7, Verdict: invariant.Violated, Invariant: "at-most-one", Signature: "at-most-one: a, b"})
		s.Shrink(workers, &tally)
		if tally.Tried != 1 || len(tally.Failed) != 1 || tally.Failed[0].Schedule.Number != 7 || tally.Failed[0].Schedule.Seed != 3 {
			t.Errorf("afterwards the tally is %+v", tally)
		}
		return tally.Failed[0].Schedule, workers
	}
	tried := -1
	for order := range uint64(20) {
		left, workers := shrink(order, 0)
		if diff := cmp.Diff(want, left.Deviations); diff != "" {
			t.Errorf("order %d: %s", order, diff)
		}
		if left.Shrunk.From != len(found) || !left.Shrunk.Needed || left.Shrunk.Tried < 10 || left.Shrunk.Tried > 200 {
			t.Errorf("order %d: %+v", order, left.Shrunk)
		}
		if workers.most > Ahead {
			t.Errorf("order %d: %d schedules were under way", order, workers.most)
		}
		if tried >= 0 && tried != left.Shrunk.Tried {
			t.Errorf("order %d: it tried %d schedules, and %d in another order", order, left.Shrunk.Tried, tried)
		}
		tried = left.Shrunk.Tried
	}
	// Workers that stop leave what is known so far, without a claim.
	for stops := 10; stops < 40; stops += 3 {
		left, _ := shrink(1, stops)
		if left.Shrunk.Needed || len(left.Deviations) < len(want) {
			t.Errorf("after %d schedules left are %d deviations: %+v", stops, len(left.Deviations), left.Shrunk)
		}
	}
}

// TestLesser: what is slighter than a deviation comes in its order, and ends: none leads back.
func TestLesser(t *testing.T) {
	for _, fault := range append(scenarios.StepFaults(), "") {
		d := scenarios.Deviation{Step: "a/api/1", Fault: fault, Delay: scenarios.Duration(time.Hour)}
		seen := map[scenarios.Deviation]bool{d: true}
		for n := 0; ; n++ {
			lesser := d.Lesser(shrinkDelays)
			if len(lesser) == 0 {
				break
			}
			if d = lesser[len(lesser)-1]; seen[d] {
				t.Fatalf("%v leads back to itself", d)
			}
			seen[d] = true
		}
		if d.Fault.HasExtent() && d.Delay == 0 {
			t.Errorf("%s ends as %v, which has no extent", fault, d)
		}
	}
	order := scenarios.Deviation{Step: "a/api/1", After: "b/api/1", Delay: scenarios.Duration(time.Minute)}
	faulty := order
	faulty.Fault = scenarios.FaultCrashBefore
	if diff := cmp.Diff([]scenarios.Deviation{{Step: "a/api/1", Fault: faulty.Fault}, order}, faulty.Lesser(shrinkDelays)); diff != "" || len(order.Lesser(shrinkDelays)) > 0 {
		t.Error(diff, order.Lesser(shrinkDelays))
	}
	got := scenarios.Deviation{Step: "a/api/1", Fault: scenarios.FaultCrashLate, Delay: scenarios.Duration(2 * time.Second)}.Lesser([]time.Duration{time.Second, 5 * time.Second})
	want := []scenarios.Deviation{
		{Step: "a/api/1", Fault: scenarios.FaultLate, Delay: scenarios.Duration(2 * time.Second)},
		{Step: "a/api/1", Fault: scenarios.FaultCrashLate, Delay: scenarios.Duration(time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// twofold plays schedules that break the same for one of two causes: a step of reboot that is late
// by two seconds at least, or any death of fencer.
type twofold struct{ cluttered }

func (c *twofold) result(s Schedule) Result {
	r := Result{Number: s.Number, Variant: s.Variant, Verdict: invariant.Held}
	for _, d := range s.Deviations {
		late := strings.HasPrefix(d.Step, "reboot/") && time.Duration(d.Delay) >= 2*time.Second
		if late || strings.HasPrefix(d.Step, "fencer/") && (d.Fault == scenarios.FaultCrashBefore || d.Fault == scenarios.FaultCrashAfter) {
			r.Verdict, r.Invariant, r.Signature = invariant.Violated, "at-most-one", "at-most-one: a, b"
			if len(s.Deviations) == 1 {
				r.Cause = CauseOf(s.Deviations)
			}
		}
	}
	return r
}

func (c *twofold) Take() (Result, bool) {
	s := c.waiting[0]
	c.waiting = c.waiting[1:]
	return c.result(s), true
}

// TestCauses: schedules that break the same for two causes are two groups, also if they have other
// deviations beside; those of one cause are one, at whichever step and by however much.
func TestCauses(t *testing.T) {
	late := func(step string, by time.Duration, fault scenarios.StepFault) scenarios.Deviation {
		return scenarios.Deviation{Step: step, Delay: scenarios.Duration(by), Fault: fault}
	}
	dies := scenarios.Deviation{Step: "fencer/api/4", Fault: scenarios.FaultCrashBefore}
	noise := func(n int) scenarios.Deviation { return late(fmt.Sprintf("kubelet/work/%d", n), time.Second, "") }
	for _, tc := range []struct {
		what      string
		schedules [][]scenarios.Deviation
		want      string
	}{
		{"one cause at several steps", [][]scenarios.Deviation{{late("reboot/api/3", 90*time.Second, "")}, {late("reboot/bmc/1", 15*time.Second, "")}}, "2 reboot was late"},
		{"a fault whose delay does it", [][]scenarios.Deviation{{late("reboot/api/3", 90*time.Second, scenarios.FaultInternal)}, {late("reboot/bmc/1", 15*time.Second, "")}}, "2 reboot was late"},
		{"two causes", [][]scenarios.Deviation{{late("reboot/api/3", 90*time.Second, "")}, {dies}, {late("reboot/api/9", 15*time.Second, "")}}, "2 reboot was late; 1 fencer died"},
		{"beside others", [][]scenarios.Deviation{
			{noise(1), late("reboot/api/3", 90*time.Second, ""), noise(2)}, {noise(1), dies}, {noise(4), noise(5), late("reboot/work/9", 15*time.Second, "")}, {dies},
		}, "2 reboot was late; 2 fencer died"},
	} {
		workers := &twofold{}
		s := &Search{Story: &Story{Plan: new(scenarios.Plan)}}
		var tally Tally
		for n, deviations := range tc.schedules {
			schedule := Schedule{Number: n, Deviations: deviations}
			r := workers.result(schedule)
			tally.Add(schedule, r)
			s.played = append(s.played, cameOut{schedule, r.Verdict, Failure{Signature: r.Signature, Cause: r.Cause}})
		}
		s.Shrink(workers, &tally)
		var got []string
		for _, f := range tally.Failures() {
			got = append(got, fmt.Sprint(f.Count, " ", f.Cause))
			if n := len(slices.DeleteFunc(slices.Clone(s.played), func(p cameOut) bool { return !f.alike(p.of) })); n != f.Count || f.Schedule.Shrunk == nil {
				t.Errorf("%s: %+v has %d of the schedules", tc.what, f, n)
			}
		}
		if text := strings.Join(got, "; "); text != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, text, tc.want)
		}
	}
}
