// Command combine plays each operation of the language in each phase of each protocol, alone and
// beside a second host in another phase, with the right controllers. They never violate a
// guarantee, but for the causes in known.yaml, each with its argument; and what is unknown has a
// reason. Pairs have two operations, and walks several on the way through all phases.
//
//	go run ./ci/combine [-pairs | -walks N [-seed N]] [-world NAME] [-only REGEXP] [-sample N]
//		[-schedules N] [-show | -violated]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

func main() {
	twice := flag.Bool("pairs", false, "two operations in each story, the second while the first lasts")
	strolls := flag.Int("walks", 0, "this many stories of two to four operations instead, each in a phase of its own and on any host")
	seed := flag.Uint64("seed", 1, "of the walks")
	world := flag.String("world", "", "play them in another world: "+strings.Join(slices.Sorted(maps.Keys(worlds)), ", "))
	only := flag.String("only", "", "only the stories whose names match this regular expression")
	sample := flag.Uint("sample", 1, "only one story out of this number, by their names")
	schedules := flag.Int("schedules", 0, "how many random schedules to play beside the default one")
	show := flag.Bool("show", false, "print the stories instead of playing them")
	violated := flag.Bool("violated", false, "print as JSON what is violated, and judge nothing")
	flag.Parse()
	debug.SetGCPercent(-1) // what a story allocates is dead by its end
	debug.SetMemoryLimit(1 << 30)
	made := stories
	switch {
	case *strolls > 0:
		made = func() []story { return walks(*strolls, *seed) }
	case *twice:
		made = pairs
	}
	if err := run(made(), *twice || *strolls > 0, *world, *only, uint32(*sample), *schedules, *show, *violated); err != nil {
		fmt.Fprintf(os.Stderr, "combine: %v\n", err)
		os.Exit(1)
	}
}

// run plays the stories that were made. Several operations in one are more than the language has.
func run(made []story, several bool, world, only string, sample uint32, schedules int, show, violated bool) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	var all []story
	if world != "" && worlds[world] == nil {
		return fmt.Errorf("there is no world %q: choose one of %s", world, strings.Join(slices.Sorted(maps.Keys(worlds)), ", "))
	}
	for _, s := range sampled(made, sample) {
		if world != "" {
			s = s.in(world)
		}
		if chosen.MatchString(s.name) {
			all = append(all, s)
		}
	}
	refused := 0
	if several {
		all, refused = playable(all)
	}
	if show {
		for _, s := range all {
			fmt.Printf("# %s\n%s---\n", s.name, s.text())
		}
		return nil
	}
	known, err := readKnown("ci/combine/known.yaml")
	if err != nil {
		return err
	}
	began := time.Now()
	results, err := playAll(all, schedules, func(some []result) error {
		if violated {
			return nil
		}
		for _, r := range known.unexplained(some) {
			plan, err := r.save("out/combine")
			if err != nil {
				return err
			}
			fmt.Printf("%-9s %s, schedule %d\n          %s\n          fencelab replay %s\n", strings.ToUpper(string(r.Verdict)), r.Story, r.Schedule, r.Reason, plan)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if violated {
		broken := slices.DeleteFunc(results, func(r result) bool { return r.Verdict != invariant.Violated })
		return json.NewEncoder(os.Stdout).Encode(broken)
	}
	if refused > 0 {
		fmt.Printf("refused %7d  stories that the language refuses\n", refused)
	}
	text, ok := known.judge(results, !several && world == "" && only == "" && schedules == 0 && sample <= 1)
	fmt.Printf("%s%d stories in %s\n", text, len(all), time.Since(began).Round(time.Second))
	if !ok {
		return fmt.Errorf("right controllers are accused, or not judged without a reason, or an entry of known.yaml is stale")
	}
	return nil
}

// playable returns the stories that the language doesn't refuse, and how many it does: of two
// operations, one may be impossible while the other lasts.
func playable(all []story) (some []story, refused int) {
	for _, s := range all {
		if _, err := file.Load(s.name, []byte(s.text()), objects.Vocabulary()); err == nil {
			some = append(some, s)
		}
	}
	return some, len(all) - len(some)
}

// sampled returns one story out of a number of them, by their names: all if that is 1.
func sampled(all []story, one uint32) (some []story) {
	for _, s := range all {
		of := fnv.New32a()
		of.Write([]byte(s.name))
		if one <= 1 || of.Sum32()%one == 0 {
			some = append(some, s)
		}
	}
	return some
}

// result is the verdict on a schedule of a story. Schedule is 0 for the default one.
type result struct {
	Story    string            `json:"story"`
	Schedule int               `json:"schedule"`
	Verdict  invariant.Verdict `json:"verdict"`
	Reason   string            `json:"reason"`

	// plan plays the schedule again, where it isn't held.
	plan *scenarios.Plan
}

// cutShort is the verdict on a story in which an operation keeps from coming what a later step
// waits for. It was held until then. Only walks may be.
const cutShort invariant.Verdict = "cut short"

// fine reports whether nothing has to be said of it.
func (r result) fine() bool { return r.Verdict == invariant.Held || r.Verdict == cutShort }

// save writes the plan of a schedule into a directory, and returns the name of the file.
func (r result) save(dir string) (string, error) {
	name := filepath.Join(dir, fmt.Sprintf("%s-%d.plan.txt", r.Story, r.Schedule))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return name, os.WriteFile(name, r.plan.Text(), 0o644)
}

// playAll plays stories side by side, and returns what came of them in their order. Each is done as
// soon as it has been played, one at a time.
func playAll(all []story, schedules int, done func([]result) error) ([]result, error) {
	each, errs := make([][]result, len(all)), make([]error, len(all))
	next := make(chan int)
	var players sync.WaitGroup
	var one sync.Mutex
	for range runtime.NumCPU() {
		players.Go(func() {
			s, err := sim.New()
			for i := range next {
				if errs[i] = err; err == nil {
					each[i], errs[i] = playOne(s, all[i], schedules)
				}
				if errs[i] == nil {
					one.Lock()
					errs[i] = done(each[i])
					one.Unlock()
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	players.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(each...), nil
}

func playOne(s *sim.Simulator, of story, schedules int) ([]result, error) {
	text := of.text()
	scenario, err := file.Load(of.name, []byte(text), objects.Vocabulary())
	if err != nil {
		return nil, fmt.Errorf("load a generated story: %w\n%s", err, text)
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		return nil, err
	}
	var all []result
	played := &campaign.Story{Plan: plan}
	player := search.NewPlayer(s, played)
	for n := range schedules + 1 {
		o, drawn, err := player.Play(campaign.Schedule{Number: n, Seed: uint64(n), Draw: n > 0})
		if err != nil {
			return nil, fmt.Errorf("play %s: %w", of.name, err)
		}
		r := result{Story: of.name, Schedule: n}
		r.Verdict, r.Reason = o.VerdictOfSchedule()
		if o.Bypassed() && r.Verdict == invariant.Unknown {
			r.Verdict, r.Reason = invariant.Held, "" // the guarantees were judged by what happened instead
		}
		if o.Stuck != "" && r.Verdict == invariant.Unknown && of.walk {
			r.Verdict = cutShort
		}
		if !r.fine() {
			r.plan = played.PlanOf(drawn)
		}
		all = append(all, r)
	}
	return all, nil
}

// known are the causes for which a right controller is accused, or not judged.
type known []*cause

// cause is one of them.
type cause struct {
	// ID names it, and Why argues for it.
	ID  string `json:"id"`
	Why string `json:"why"`
	// Stories and Reason match the names of its stories, and what is said of them.
	Stories string `json:"stories"`
	Reason  string `json:"reason"`
	// Unknown says that its stories aren't judged; otherwise they are violated.
	Unknown bool `json:"unknown,omitempty"`

	stories, reason *regexp.Regexp
}

func readKnown(name string) (known, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	all, err := parseKnown(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return all, nil
}

func parseKnown(data []byte) (all known, err error) {
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.ID == "" || strings.TrimSpace(c.Why) == "" || c.Stories == "" || c.Reason == "" {
			return nil, fmt.Errorf("cause %q: id, why, stories and reason are needed", c.ID)
		}
		if c.stories, err = regexp.Compile("^((" + strings.Join(slices.Sorted(maps.Keys(worlds)), "|") + ")\\.)?(" + c.Stories + ")$"); err != nil {
			return nil, fmt.Errorf("cause %s: %w", c.ID, err)
		}
		if c.reason, err = regexp.Compile("^(" + c.Reason + ")"); err != nil {
			return nil, fmt.Errorf("cause %s: %w", c.ID, err)
		}
	}
	return all, nil
}

// unexplained returns what is not held and has none of the causes.
func (k known) unexplained(results []result) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool {
		return r.fine() || k.cause(r) != nil
	})
}

// cause returns why a schedule isn't held, or nil.
func (k known) cause(r result) *cause {
	i := slices.IndexFunc(k, func(c *cause) bool {
		return c.Unknown == (r.Verdict != invariant.Violated) && c.stories.MatchString(r.Story) && c.reason.MatchString(r.Reason)
	})
	if i < 0 {
		return nil
	}
	return k[i]
}

// judge counts what came of stories, and reports whether it is as it should be. With all stories,
// causes that none of them has are stale.
func (k known) judge(results []result, all bool) (text string, ok bool) {
	counts, found := map[invariant.Verdict]int{}, map[*cause]int{}
	for _, r := range results {
		counts[r.Verdict]++
		if !r.fine() {
			found[k.cause(r)]++
		}
	}
	var b strings.Builder
	stale := 0
	for _, c := range k {
		fmt.Fprintf(&b, "known     %5d  %s\n", found[c], c.ID)
		if all && found[c] == 0 {
			stale++
			fmt.Fprintf(&b, "STALE     no story has the cause %s any more: remove it\n", c.ID)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%-9s %5d\n", v, counts[v])
	}
	return b.String(), found[nil] == 0 && stale == 0
}
