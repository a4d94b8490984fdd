package remediation

import (
	_ "embed"
	"strings"
	"testing"
)

// truthTable is the table of seed 002, verbatim.
//
//go:embed testdata/truth-table.md
var truthTable string

// wording maps the table's last column to actions.
var wording = map[string]Action{
	"Add reboot annotation":              AddReboot,
	"Delete node":                        DeleteNode,
	"nothing":                            Nothing,
	"Remove needs-remediation annoation": RemoveNeedsRemediation,
	"Remove reboot annotation":           RemoveReboot,
}

func TestTruthTable(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(truthTable), "\n")
	if head := "|Node Ref exists?|Needs remediation annotation|Powered on?|Reboot annotation|MRC action|"; lines[0] != head {
		t.Fatalf("the columns are %s", lines[0])
	}
	seen := map[row]bool{}
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("row %s has %d cells", line, len(cells))
		}
		var r row
		for i := range r {
			r[i] = cells[i] == "1"
		}
		want, ok := wording[cells[4]]
		if !ok {
			t.Fatalf("row %s: what is %q?", line, cells[4])
		}
		seen[r] = true
		if got, ok := table[r]; !ok || got != want {
			t.Errorf("row %s: %s", line, got)
		}
		if s := stated(r); s.row() == r && Decide(s) != want {
			t.Errorf("row %s: %+v leads to %s", line, s, Decide(s))
		}
	}
	if len(seen) != 15 || seen[row{}] {
		t.Errorf("the table has %d rows, and 0,0,0,0 among them: %t", len(seen), seen[row{}])
	}
	if got, ok := table[row{}]; !ok || got != Nothing || len(table) != 16 {
		t.Errorf("row 0,0,0,0: %s, of %d rows", got, len(table))
	}
}

// stated makes the State that has the facts of a row, and where it is off in
// answer to a request, says so.
func stated(r row) State {
	return State{
		NodeExists: r[0], NeedsRemediation: r[1], StatusOn: r[2], RebootAnnotation: r[3],
		AnswersRequest: r[3] && !r[2],
	}
}

// TestOffWithoutRequestCountsAsOn names the rows of the table that decision 4
// takes out of use, and what is done in their place. Only two decisions differ:
// a marked host that is off by itself, and might boot any moment, is asked for.
func TestOffWithoutRequestCountsAsOn(t *testing.T) {
	for r, want := range map[row]Action{
		{o, o, o, o}: Nothing,
		{x, o, o, o}: Nothing,
		{o, x, o, o}: AddReboot,
		{x, x, o, o}: AddReboot,
	} {
		if s := stated(r); !s.PoweredOn() || Decide(s) != want {
			t.Errorf("row %v: powered on %t, %s, want %s", r, s.PoweredOn(), Decide(s), want)
		}
	}
	for r := range table {
		if s := stated(r); s.row() != r && (r[2] || r[3]) {
			t.Errorf("row %v is out of use as well: %+v", r, s)
		}
	}
}

// everyState calls f with each possible State.
func everyState(f func(State)) {
	for bits := range 1 << 8 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		s := State{
			NodeExists: bit(0), NeedsRemediation: bit(1), StatusOn: bit(2), RebootAnnotation: bit(3),
			AnswersRequest: bit(4), PoweredOffMark: bit(5), Outdated: bit(6), Overdue: bit(7),
		}
		if s.AnswersRequest && !s.RebootAnnotation || s.Outdated && !(s.RebootAnnotation && s.NodeExists) || s.Overdue && (s.NodeExists || s.RebootAnnotation || !s.PoweredOffMark) {
			continue // implied
		}
		f(s)
	}
}

func TestOnlyAnAnswerCounts(t *testing.T) {
	for name, decide := range map[string]func(State) Action{"Decide": Decide, "KeepMark": KeepMark} {
		deletes := 0
		everyState(func(s State) {
			answered := !s.StatusOn && s.RebootAnnotation && s.AnswersRequest
			switch action := decide(s); action {
			case DeleteNode:
				deletes++
				if !answered || s.Outdated || !s.NodeExists || !s.NeedsRemediation {
					t.Errorf("%s deletes the Node in %+v", name, s)
				}
			case AskAgain:
				if !answered || !s.Outdated || !s.NodeExists || !s.NeedsRemediation {
					t.Errorf("%s asks again in %+v", name, s)
				}
			case RemoveReboot, RemoveNeedsRemediation, AddPoweredOffMark:
				if !answered {
					t.Errorf("%s: %s in %+v", name, action, s)
				}
				if action == RemoveReboot && s.NodeExists && s.NeedsRemediation {
					t.Errorf("%s lets the host boot before its Node is deleted in %+v", name, s)
				}
			case AddReboot:
				if !s.NeedsRemediation || s.RebootAnnotation {
					t.Errorf("%s asks for a reboot in %+v", name, s)
				}
			}
		})
		if deletes == 0 {
			t.Errorf("%s never deletes a Node", name)
		}
	}
}

// TestKeepMarkNeverGivesTheMachineAway checks what the option is for: from the
// Node's deletion until its return there is always a needs-remediation
// annotation, so that no health check has cause to add one.
func TestKeepMarkNeverGivesTheMachineAway(t *testing.T) {
	everyState(func(s State) {
		action := KeepMark(s)
		if action == RemoveNeedsRemediation {
			t.Errorf("%s in %+v", action, s)
		}
		if action == Finish && s.NeedsRemediation && !s.NodeExists {
			t.Errorf("%s before the Node is back in %+v", action, s)
		}
		if action == AddReboot && s.PoweredOffMark && !s.NodeExists && !s.Overdue {
			t.Errorf("%s while the host boots in %+v", action, s)
		}
		if s.Overdue && s.NeedsRemediation && action != AddReboot {
			t.Errorf("%s although the Node should be back in %+v", action, s)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	s := State{NodeExists: true, StatusOn: true}
	for b.Loop() {
		if Decide(s) != Nothing {
			b.Fatal("something to do")
		}
	}
}
