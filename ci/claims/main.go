// Command claims measures what searches say of themselves. It finishes some, and writes what was
// foretold, and what was estimated on the way, beside what came of them.
//
//	go run ./ci/claims [-only STORY,...] [-table docs/measured/claims.md]
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
)

// searches begin with the smallest.
var searches = []finished{
	{story: "machine-remediation/user-deletes-a-node", depth: 1},
	{story: "health-check/cordoned-node", depth: 1},
	{story: "examples/watchdog", depth: 1},
	{story: "machine-remediation/user-deletes-a-node", depth: 2},
	{story: "reboot-annotation/power-lost-before-the-request", depth: 1},
	{story: "reboot-annotation/plain-soft-by-name", depth: 1},
	{story: "machine-remediation/node-deleted-without-a-mark", depth: 1},
	{story: "reboot-annotation/ac-loss-of-a-host-that-is-wanted-on", depth: 1},
	{story: "examples/watchdog", depth: 2, within: 100 * time.Millisecond},
	{story: "reboot-annotation/power-lost-before-the-request", depth: 2, within: 100 * time.Millisecond},
	{story: "machine-remediation/node-deleted-without-a-mark", depth: 2, within: 100 * time.Millisecond},
}

// finished is a search that is played to its end. Story is a file below the catalogue, or below
// the directory of the examples.
type finished struct {
	story  string
	depth  int
	within time.Duration
}

func (f *finished) file() string {
	if dir, _, ok := strings.Cut(f.story, "/"); ok && dir == "examples" {
		return "docs/" + f.story + ".yaml"
	}
	return "scenarios/catalog/" + f.story + ".yaml"
}

// most is how late a step comes where nothing bounds it more narrowly.
const most = 90 * time.Second

// bound is how late a step comes at most.
func (f *finished) bound() time.Duration { return cmp.Or(f.within, most) }

// moments are when an estimate is looked at, in percent of a part.
var moments = []int{1, 10, 50}

// claim holds what a search said beside what came of it.
type claim struct {
	finished
	foretold, came []campaign.Share
	tally          campaign.Tally
	// early has the shares of a part at each of the moments.
	early map[string][]campaign.Share
	// foretime is how long all schedules were foretold to take, and took how long they took.
	foretime, took time.Duration
}

func main() {
	only := flag.String("only", "", "only the stories whose names begin with one of these, separated by commas")
	table := flag.String("table", "", "write the page to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *table); err != nil {
		fmt.Fprintf(os.Stderr, "claims: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, table string) error {
	chosen := slices.DeleteFunc(slices.Clone(searches), func(f finished) bool {
		return !slices.ContainsFunc(strings.Split(only, ","), func(prefix string) bool { return strings.HasPrefix(path.Base(f.story), prefix) })
	})
	all := make([]*claim, len(chosen))
	return pool.Each(ctx, runtime.GOMAXPROCS(0), len(chosen), func(ctx context.Context, _, i int) (err error) {
		if all[i], err = chosen[i].play(ctx); err != nil {
			return fmt.Errorf("finish the search of %s: %w", chosen[i].story, err)
		}
		return ctx.Err()
	}, func(i int) {
		fmt.Println(all[i].row(), all[i].took.Round(time.Second))
		if table != "" { // after each: it takes long
			if err := os.WriteFile(table, page(all[:i+1]), 0o644); err != nil {
				fmt.Fprintf(os.Stderr, "claims: %v\n", err)
			}
		}
	})
}
