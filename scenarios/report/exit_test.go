package report_test

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios/report"
)

func TestWorse(t *testing.T) {
	for _, tc := range []struct{ a, b, want int }{
		{report.ExitHeld, report.ExitHeld, report.ExitHeld},
		{report.ExitHeld, report.ExitUnknown, report.ExitUnknown},
		{report.ExitUnknown, report.ExitViolated, report.ExitViolated},
		{report.ExitViolated, report.ExitUnknown, report.ExitViolated},
		{report.ExitViolated, report.ExitInternal, report.ExitInternal},
	} {
		if got := report.Worse(tc.a, tc.b); got != tc.want {
			t.Errorf("worse(%d, %d) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
