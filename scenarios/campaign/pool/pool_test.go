package pool_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencelab/fencelab/scenarios/campaign/pool"
)

// TestEach: things that are done in any order are reported in their own, and each once.
func TestEach(t *testing.T) {
	const things = 20
	var told []int
	second := make(chan struct{})
	err := pool.Each(t.Context(), 3, things, func(_ context.Context, worker, i int) error {
		if worker < 0 || worker > 2 {
			t.Errorf("worker %d of 3", worker)
		}
		switch i {
		case 0:
			<-second // so that the first is not the first to be done
		case 1:
			close(second)
		}
		return nil
	}, func(i int) { told = append(told, i) })
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != things || !slices.IsSorted(told) {
		t.Errorf("told of %v", told)
	}
}

// TestEachFails: the first failure ends the others and is the error. Anything after it is neither
// begun nor reported.
func TestEachFails(t *testing.T) {
	broken := errors.New("broken")
	var begun atomic.Int32
	var told []int
	err := pool.Each(t.Context(), 2, 1000, func(ctx context.Context, _, i int) error {
		begun.Add(1)
		switch {
		case i == 1:
			return broken
		case i > 1:
			<-ctx.Done() // it would wait for ever
			return ctx.Err()
		}
		return nil
	}, func(i int) { told = append(told, i) })
	if !errors.Is(err, broken) {
		t.Errorf("it failed with %v", err)
	}
	if n := begun.Load(); n > 4 {
		t.Errorf("%d were begun", n)
	}
	if len(told) > 1 {
		t.Errorf("told of %v", told)
	}
	if err := pool.Each(t.Context(), 2, 0, nil, nil); err != nil {
		t.Errorf("nothing to do failed: %v", err)
	}
}

// TestAhead: results come in the order of the things, whichever is done first, and more of them
// than wait at a time. What the end of the context has kept from being done has no result.
func TestAhead(t *testing.T) {
	const things = 300
	second := make(chan struct{})
	take := pool.Ahead(t.Context(), 3, things, func(_ context.Context, worker, i int) int {
		if worker < 0 || worker > 2 {
			t.Errorf("worker %d of 3", worker)
		}
		switch i {
		case 0:
			<-second // so that the first is not the first to be done
		case 1:
			close(second)
		}
		return i + 1
	})
	for i := range things {
		if got := take(); got != i+1 {
			t.Fatalf("result %d is %d", i, got)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	take = pool.Ahead(ctx, 2, 2, func(context.Context, int, int) int { return 1 })
	if one, other := take(), take(); one != 0 || other != 0 {
		t.Errorf("after the end of the context %d and %d were done", one, other)
	}
}
