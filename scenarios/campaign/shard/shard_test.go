package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// outline is a campaign of this version and name, in which nothing is real but the arithmetic.
func outline(version, name string) *Outline {
	c := &scenarios.Campaign{Metadata: scenarios.CampaignMetadata{Name: name}, Spec: scenarios.CampaignSpec{Guarantees: map[string]int{"at-most-one": 60}}}
	var searches []Search
	for i, story := range []string{"cut-off", "held", "plain"} {
		for _, strategy := range []string{"orders", "random"} {
			tests := []string{"at-most-one", "fenced-before-release"}
			searches = append(searches, Search{Story: story, Strategy: strategy, Seed: 1, Survey: Survey{All: 310 + 7*i, Weight: 50 + 40*i, Tests: tests[:1+i%2], Digest: story}})
		}
		searches = append(searches, Search{Story: story, Strategy: "coverage", Seed: 1, Survey: Survey{All: 130, Whole: true, Weight: 60, Digest: story}})
	}
	return NewOutline(version, c, digest(name), searches)
}

// TestBranches: a search that plays combinations is cut by its branches, into jobs of about the
// same work as those of others. When all were played, the number of schedules is no forecast.
func TestBranches(t *testing.T) {
	c := &scenarios.Campaign{Metadata: scenarios.CampaignMetadata{Name: "deep"}}
	o := NewOutline("v1", c, "d", []Search{
		{Story: "s", Strategy: "orders", Seed: 1, Depth: 2, Survey: Survey{All: 1000, Branches: 100, Weight: 10, Digest: "s"}},
		{Story: "s", Strategy: "orders", Seed: 1, Survey: Survey{All: 40, Weight: 10, Digest: "s"}},
	})
	if len(o.Jobs) != 52 || o.Jobs[0].To != 2 || o.About(o.Jobs[0]) != 20 || o.About(o.Jobs[51]) != 20 || o.Schedules != 1040 {
		t.Fatalf("%d jobs, of which the first is %+v", len(o.Jobs), o.Jobs[0])
	}
	for i := range 4 {
		jobs, err := o.Shard(i+1, 4)
		if err != nil || len(jobs) != 13 {
			t.Errorf("shard %d has %d jobs (%v)", i+1, len(jobs), err)
		}
	}
	w, err := Open(t.TempDir(), o, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for len(w.Left) > 0 {
		r := Record{Job: w.Left[0], Digest: "d"}
		for n := range 13 {
			r.Tally.Add(campaign.Schedule{Number: n}, campaign.Result{Verdict: invariant.Held})
		}
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := merge(w.Name)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := m.Result(); err != nil || r.Schedules != 52*13 || r.All != r.Schedules || r.Searches[0].All != 650 {
		t.Errorf("%d of %d schedules (%v)", r.Schedules, r.All, err)
	}
}

// TestSurvey: a program finds what an equal one has surveyed, and nothing of another one or half a
// file.
func TestSurvey(t *testing.T) {
	c := &scenarios.Campaign{Metadata: scenarios.CampaignMetadata{Name: "nightly"}}
	name := SurveyFile(filepath.Join(t.TempDir(), "new"), c, nil)
	searches := []Search{{Story: "s", Strategy: "orders", Seed: 1, Survey: Survey{All: 3, Tests: []string{"at-most-one"}, Digest: "d"}}}
	if err := SaveSurvey(name, "p", searches); err != nil {
		t.Fatal(err)
	}
	if got := LoadSurvey(name, "p"); len(got) != 1 || !got[0].Same(searches[0]) || got[0].Digest != "d" || got[0].Tests[0] != "at-most-one" {
		t.Errorf("it is %+v", got)
	}
	deep := searches[0]
	deep.Depth = 2
	if LoadSurvey(name, "another") != nil || deep.Same(searches[0]) {
		t.Error("the survey of another program or search counts")
	}
	if err := os.Truncate(name, 9); err != nil || LoadSurvey(name, "p") != nil {
		t.Errorf("half a survey counts (%v)", err)
	}
}

// played makes the record of a job: one schedule in 37 fails, in one of three ways.
func played(o *Outline, j Job) Record {
	r := Record{Job: j, Digest: fmt.Sprint("digest of ", j.Index)}
	for n := j.From; n < j.To; n++ {
		result := campaign.Result{Number: n, Verdict: invariant.Held, Simulated: 7, Idle: n%5 == 0, Rulings: map[string]campaign.Rulings{"at-most-one": {Judged: 2, Excused: n % 2, Schedules: 1}}}
		if n%37 == 0 {
			result.Verdict, result.Invariant, result.Signature = invariant.Violated, "at-most-one", fmt.Sprint("at-most-one: ", n%3)
			r.Story = &campaign.Story{Plan: &scenarios.Plan{Metadata: scenarios.Metadata{Name: o.Searches[j.Search].Story}}}
		}
		r.Tally.Add(campaign.Schedule{Number: n, Deviations: []scenarios.Deviation{{Step: fmt.Sprint("a/api/", n)}}}, result)
	}
	r.Tally.Failed = r.Tally.Failures()
	return r
}

// write plays a shard, of which some may be there, and returns its blob.
func write(t *testing.T, dir string, o *Outline, i, n int) string {
	t.Helper()
	w, err := Open(dir, o, i, n)
	if err != nil {
		t.Fatal(err)
	}
	for len(w.Left) > 0 {
		if err := w.Add(played(o, w.Left[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || w.Trailer == nil {
		t.Fatalf("the blob has no trailer (%v)", err)
	}
	return w.Name
}

func merge(blobs ...string) (*Merger, error) {
	m := NewMerger()
	for _, name := range blobs {
		data, err := os.ReadFile(name)
		if err == nil {
			err = m.Add(filepath.Base(name), bytes.NewReader(data))
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func result(t *testing.T, blobs ...string) *Result {
	t.Helper()
	m, err := merge(blobs...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Result()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asJSON(t *testing.T, value any) string {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPartitions: shards of any number, merged in any order and one of them twice, come to the same
// as the campaign in one piece.
func TestPartitions(t *testing.T) {
	o := outline("v1", "nightly")
	whole := result(t, write(t, t.TempDir(), o, 1, 1))
	if whole.Schedules != o.Schedules || len(whole.Findings) != 9 || len(whole.Missing) > 0 || whole.Code() != exit.Violated || whole.Findings[0].Plan == nil {
		t.Fatalf("%d of %d schedules, findings %+v, missing %v: that compares nothing", whole.Schedules, o.Schedules, whole.Findings, whole.Missing)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 7, 40} {
		var blobs []string
		for i := range n {
			blobs = append(blobs, write(t, t.TempDir(), o, i+1, n))
		}
		blobs = append(blobs, blobs[random.IntN(n)])
		for range 3 {
			random.Shuffle(len(blobs), func(i, j int) { blobs[i], blobs[j] = blobs[j], blobs[i] })
			if diff := cmp.Diff(asJSON(t, whole), asJSON(t, result(t, blobs...))); diff != "" {
				t.Fatalf("%d shards (-in one piece +merged):\n%s", n, diff)
			}
		}
	}
	// They may be of two partitions.
	if diff := cmp.Diff(asJSON(t, whole), asJSON(t, result(t, write(t, t.TempDir(), o, 2, 3), write(t, t.TempDir(), o, 1, 1)))); diff != "" {
		t.Error(diff)
	}
}

// TestShards: shards have each job once, in order, and never none; the heaviest has not much more
// to do than an equal part.
func TestShards(t *testing.T) {
	o := outline("v1", "nightly")
	total, heaviest := 0, 0
	for _, j := range o.Jobs {
		total, heaviest = total+o.weight(j), max(heaviest, o.weight(j))
	}
	for n := 1; n <= len(o.Jobs); n++ {
		var all []Job
		for i := 1; i <= n; i++ {
			jobs, err := o.Shard(i, n)
			if err != nil || len(jobs) == 0 {
				t.Fatalf("shard %d of %d has %d jobs (%v)", i, n, len(jobs), err)
			}
			weight := 0
			for _, j := range jobs {
				weight += o.weight(j)
			}
			if weight > total/n+heaviest {
				t.Errorf("shard %d of %d weighs %d of %d", i, n, weight, total)
			}
			all = append(all, jobs...)
		}
		if !slices.Equal(all, o.Jobs) {
			t.Fatalf("%d shards have other jobs than the campaign", n)
		}
	}
	for _, at := range [][2]int{{0, 3}, {4, 3}, {1, len(o.Jobs) + 1}, {1, 0}} {
		if jobs, err := o.Shard(at[0], at[1]); err == nil {
			t.Errorf("shard %d of %d has %d jobs", at[0], at[1], len(jobs))
		}
	}
}

// TestCutOff: of a blob that is cut off anywhere, what is whole counts and what is missing is said.
// Whoever plays its shard again ends with the same file, byte for byte.
func TestCutOff(t *testing.T) {
	o := outline("v1", "nightly")
	dir := t.TempDir()
	first, second := write(t, dir, o, 1, 2), write(t, dir, o, 2, 2)
	want, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	alone := result(t, first)
	for at := 0; at < len(want); at += 1 + len(want)/97 {
		if err := os.WriteFile(second, want[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := merge(first, second)
		if err != nil {
			t.Fatalf("cut off at byte %d: %v", at, err)
		}
		r, err := m.Result()
		missing := []string{"shard 2 of 2"}
		if r.Jobs == r.AllJobs {
			missing = nil // only the trailer is cut off
		}
		if err != nil || len(m.Cut()) != 1 || !strings.Contains(m.Cut()[0], filepath.Base(second)+" is cut off") || !slices.Equal(r.Missing, missing) {
			t.Fatalf("cut off at byte %d: it says %q, missing %q (%v)", at, m.Cut(), r.Missing, err)
		}
		if r.Schedules < alone.Schedules || r.Schedules > o.Schedules || at > len(want)/2 && r.Schedules == alone.Schedules {
			t.Fatalf("cut off at byte %d, %d schedules count", at, r.Schedules)
		}
		if r.Findings = nil; missing != nil && r.Code() != exit.Unknown {
			t.Fatal("it is not unknown")
		}
		write(t, dir, o, 2, 2)
		if again, err := os.ReadFile(second); err != nil || !bytes.Equal(again, want) {
			t.Fatalf("cut off at byte %d, the shard ends with another blob (%v)", at, err)
		}
	}
	if r := result(t, write(t, t.TempDir(), o, 3, 7)); len(r.Missing) != 6 || r.Missing[1] != "shard 2 of 7" {
		t.Errorf("missing: %v", r.Missing)
	}
}

// TestForeign: blobs that don't belong together are refused, with both named, and so is one that
// was changed.
func TestForeign(t *testing.T) {
	dir, o := t.TempDir(), outline("v1", "nightly")
	own := write(t, dir, o, 1, 2)
	changed := outline("v1", "nightly")
	changed.Searches[3].Survey.Digest = "other"
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.blob")
	if err := os.WriteFile(damaged, bytes.Replace(text, []byte(`"held":20`), []byte(`"held":21`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.blob")
	w, err := Open(filepath.Dir(other), o, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := played(o, w.Left[0])
	r.Digest = "another"
	if err := errors.Join(w.Add(r), w.Close()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(own)
	for what, c := range map[string]struct {
		blob string
		code int
		want []string
	}{
		"older":     {write(t, t.TempDir(), outline("v0", "nightly"), 2, 2), exit.Invalid, []string{"is of fencelab v0", name + " of v1"}},
		"foreign":   {write(t, t.TempDir(), outline("v1", "weekly"), 2, 2), exit.Invalid, []string{"is of the campaign weekly (", name + " of nightly ("}},
		"behaviour": {write(t, t.TempDir(), changed, 2, 2), exit.Invalid, []string{"is of programs that behave as " + changed.Behaviour(), name + " of " + o.Behaviour()}},
		"damaged":   {damaged, exit.Invalid, []string{"damaged.blob: it is damaged"}},
		"another":   {w.Name, exit.Internal, []string{": 1 to 20 of cut-off (orders, seed 1) came out as digest of 0 in one blob and as another in another"}},
	} {
		_, err := merge(own, c.blob)
		if exit.Code(err) != c.code {
			t.Errorf("%s: the error %v has the code %d, want %d", what, err, exit.Code(err), c.code)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", what, err, want)
			}
		}
	}
	// Nor does a shard go on with what is not its own.
	if err := os.WriteFile(own, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, &Outline{Version: "v2", Campaign: o.Campaign, Digest: o.Digest, Searches: o.Searches, Jobs: o.Jobs}, 1, 2); err == nil || !strings.Contains(err.Error(), "is of fencelab v1, and this campaign of v2; remove the file") {
		t.Errorf("it goes on with the blob of another version: %v", err)
	}
}

// TestShort: what was put to the test too seldom is said, and what was tested enough isn't.
func TestShort(t *testing.T) {
	for name, c := range map[string]struct {
		tested   Tested
		promised int
		part     bool
		want     string
	}{
		"never":                   {tested: Tested{Chances: few}, want: "x was put to the test in none of 100 schedules whose default schedule does so"},
		"only excused":            {tested: Tested{Chances: few, Rulings: campaign.Rulings{Judged: 9, Excused: 9}}, want: "none of 100 schedules"},
		"once":                    {tested: Tested{Chances: few, Rulings: campaign.Rulings{Judged: 1, Schedules: 1}}},
		"few chances":             {tested: Tested{Chances: few - 1}},
		"less than promised":      {tested: Tested{Chances: 200, Rulings: campaign.Rulings{Schedules: 99}}, promised: 50, want: "x was put to the test in 99 of 200 schedules, and 50% were promised"},
		"as promised":             {tested: Tested{Chances: 200, Rulings: campaign.Rulings{Schedules: 100}}, promised: 50},
		"promised, of few":        {tested: Tested{Chances: 2}, promised: 1, want: "x was put to the test in 0 of 2 schedules"},
		"promised, of none":       {promised: 1, want: "x was promised, and no default schedule of a story puts it to the test"},
		"promised, for elsewhere": {promised: 1, part: true},
	} {
		c.tested.Guarantee = "x"
		promised := map[string]int{}
		if c.promised > 0 {
			promised["x"] = c.promised
		}
		if got := strings.Join(short([]Tested{c.tested}, promised, !c.part), "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: it says %q, want %q", name, got, c.want)
		}
	}
	if r := (&Result{}); r.Code() != exit.Unknown {
		t.Error("a campaign that played nothing is green")
	}
}

// TestDiff: what is new, gone, rarer or less tested is said; what is as before, or less only by
// chance, isn't.
func TestDiff(t *testing.T) {
	of := func(played, tested, count int, signatures ...string) *Result {
		r := &Result{Searches: []Sum{{Search: Search{Story: "s"}, Tally: campaign.Tally{Tried: played}}}}
		r.Tested = []Tested{{Story: "s", Guarantee: "g", Rulings: campaign.Rulings{Schedules: tested}}}
		for _, signature := range signatures {
			guarantee, _, _ := strings.Cut(signature, ":")
			r.Findings = append(r.Findings, Finding{Key: digest(signature), Story: "s", Guarantee: strings.TrimPrefix(guarantee, "unknown"), Signature: signature, Count: count, Schedules: played})
		}
		return r
	}
	for name, c := range map[string]struct {
		before, after *Result
		want          string
		code          int
	}{
		"the same":             {of(100, 90, 5, "g: a"), of(100, 90, 5, "g: a"), "0 new, 0 gone, 0 rarer, []", exit.Held},
		"new":                  {of(100, 90, 5, "g: a"), of(100, 90, 5, "g: a", "g: b"), "1 new, 0 gone, 0 rarer, []", exit.Violated},
		"new, of unknown":      {of(100, 90, 5), of(100, 90, 5, "unknown: b"), "1 new, 0 gone, 0 rarer, []", exit.Unknown},
		"gone":                 {of(100, 90, 5, "g: a"), of(100, 90, 5), "0 new, 1 gone, 0 rarer, []", exit.Held},
		"rarer":                {of(100, 90, 9, "g: a"), of(100, 90, 4, "g: a"), "0 new, 0 gone, 1 rarer, []", exit.Held},
		"not much rarer":       {of(100, 90, 9, "g: a"), of(100, 90, 5, "g: a"), "0 new, 0 gone, 0 rarer, []", exit.Held},
		"as often, of fewer":   {of(100, 90, 8, "g: a"), of(60, 54, 5, "g: a"), "0 new, 0 gone, 0 rarer, []", exit.Held},
		"tested less":          {of(100, 90, 0), of(100, 44, 0), "[s: g was put to the test in 44 of 100 schedules, and in 90 of 100 before]", exit.Unknown},
		"never tested":         {of(100, 90, 0), &Result{Searches: of(100, 0, 0).Searches}, "[s: g was put to the test in 0 of 100 schedules, and in 90 of 100 before]", exit.Unknown},
		"tested a little less": {of(100, 90, 0), of(100, 45, 0), "0 rarer, []", exit.Held},
		"tested seldom":        {of(100, enough-1, 0), of(100, 0, 0), "0 rarer, []", exit.Held},
		"played less":          {of(100, 90, 0), of(49, 45, 0), "[s: 49 schedules, and 100 before]", exit.Unknown},
		"not played":           {of(100, 90, 0), new(Result), "[s: 0 schedules, and 100 before]", exit.Unknown},
	} {
		d := Diff(c.before, c.after)
		got := fmt.Sprintf("%d new, %d gone, %d rarer, %v", len(d.New), len(d.Gone), len(d.Rarer), d.Less)
		if !strings.HasSuffix(got, c.want) || d.Code() != c.code {
			t.Errorf("%s: %s with the code %d, want %s with %d", name, got, d.Code(), c.want, c.code)
		}
	}
}
