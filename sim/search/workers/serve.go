package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// memory is how much a worker allocates before it collects garbage. Everything that a schedule
// allocates is dead by its end, so a late collection has less to do; twice as much is no faster,
// and a short search spends a twentieth of its time on first touching it.
const memory = 100 << 20

// Tune makes this process one that plays schedules and does nothing else, beside what it keeps by
// now: a worker that keeps more than its limit would do little but collect garbage.
func Tune() {
	debug.SetGCPercent(-1)
	runtime.GC()
	var kept runtime.MemStats
	runtime.ReadMemStats(&kept)
	debug.SetMemoryLimit(int64(kept.HeapAlloc) + memory)
}

// Serve runs a worker: it plays the schedules that it reads, and writes their results. It ends
// when its input does, or the context, after the schedule that it plays.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	simulator, err := sim.New()
	if err != nil {
		return err
	}
	var story campaign.Story
	from := json.NewDecoder(in)
	if err := from.Decode(&story); err != nil {
		return fmt.Errorf("read the story: %w", err)
	}
	Tune()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan []campaign.Schedule, inHand)
	broken := make(chan error, 1)
	go func() {
		defer close(batches)
		// the remaining schedules are no longer needed
		defer stop()
		for {
			var batch []campaign.Schedule
			if err := from.Decode(&batch); err != nil {
				broken <- err
				return
			}
			batches <- batch
		}
	}()
	player, to := search.NewPlayer(simulator, &story), json.NewEncoder(out)
	for ctx.Err() == nil {
		batch, ok := <-batches
		if !ok {
			break
		}
		found := make([]campaign.Result, 0, len(batch))
		for _, schedule := range batch {
			if ctx.Err() != nil {
				break
			}
			result, err := player.Try(schedule)
			if err != nil {
				return err
			}
			found = append(found, result)
		}
		if err := to.Encode(found); err != nil {
			return fmt.Errorf("say what was found: %w", err)
		}
	}
	select {
	case err := <-broken:
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the schedules: %w", err)
		}
	default: // it was interrupted
	}
	return nil
}
