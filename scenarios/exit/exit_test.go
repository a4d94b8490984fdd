package exit_test

import (
	"github.com/fencelab/fencelab/scenarios/exit"
	"testing"
)

func TestWorse(t *testing.T) {
	for _, tc := range []struct{ a, b, want int }{
		{exit.Held, exit.Held, exit.Held},
		{exit.Held, exit.Unknown, exit.Unknown},
		{exit.Unknown, exit.Violated, exit.Violated},
		{exit.Violated, exit.Unknown, exit.Violated},
		{exit.Violated, exit.Internal, exit.Internal},
	} {
		if got := exit.Worse(tc.a, tc.b); got != tc.want {
			t.Errorf("worse(%d, %d) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
