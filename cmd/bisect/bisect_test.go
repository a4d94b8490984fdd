package bisect_test

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/fencelab/fencelab/cmd/bisect"
)

// TestFind: the first bad commit is found wherever it is, in no more tries than a bisection takes;
// what can't be tried costs one try each, and is said only where it hides the answer.
func TestFind(t *testing.T) {
	for n := 2; n < 70; n++ {
		for first := 1; first < n; first++ {
			tries := 0
			good, bad, err := bisect.Find(n, func(i int) (bisect.Verdict, error) {
				tries++
				if i <= 0 || i >= n-1 {
					t.Fatalf("it tries the end %d of %d", i, n)
				}
				if i < first {
					return bisect.Good, nil
				}
				return bisect.Bad, nil
			})
			if err != nil || good != first-1 || bad != first || tries > bits.Len(uint(n-2)) {
				t.Fatalf("of %d commits %d is bad, and in %d tries it finds %d and %d (%v)", n, first, tries, good, bad, err)
			}
			for skipped := 1; skipped < n-1; skipped++ {
				tried := make(map[int]bool)
				good, bad, err := bisect.Find(n, func(i int) (bisect.Verdict, error) {
					if tried[i] {
						t.Fatalf("it tries %d again", i)
					}
					tried[i] = true
					switch {
					case i == skipped:
						return bisect.Skipped, nil
					case i < first:
						return bisect.Good, nil
					}
					return bisect.Bad, nil
				})
				wantGood, wantBad := first-1, first
				if skipped == first-1 && skipped > 0 {
					wantGood = first - 2
				} else if skipped == first && first < n-1 {
					wantBad = first + 1
				}
				if err != nil || good != wantGood || bad != wantBad {
					t.Fatalf("of %d commits %d is bad and %d can't be tried; it finds %d and %d (%v)", n, first, skipped, good, bad, err)
				}
			}
		}
	}
	failure := errors.New("no room on the disk")
	if _, _, err := bisect.Find(9, func(int) (bisect.Verdict, error) { return bisect.Bad, failure }); !errors.Is(err, failure) {
		t.Errorf("it ends with %v", err)
	}
}
