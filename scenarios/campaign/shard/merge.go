package shard

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Result holds what a campaign found, whatever its partition was.
type Result struct {
	Version   string `json:"fencelab"`
	Campaign  string `json:"campaign"`
	Digest    string `json:"digest"`
	Behaviour string `json:"behaviour"`
	// Jobs and Schedules were played, of AllJobs and All.
	Jobs      int `json:"jobs"`
	AllJobs   int `json:"ofJobs"`
	Schedules int `json:"schedules"`
	All       int `json:"ofSchedules"`
	// Missing says which parts of the campaign are not in any blob, and Short which guarantees
	// were put to the test less often than was promised.
	Missing []string `json:"missing,omitempty"`
	Short   []string `json:"short,omitempty"`
	// Searches has each of which anything was played, and Tested says how often each guarantee was
	// put to the test in each story.
	Searches []Sum     `json:"searches"`
	Tested   []Tested  `json:"tested"`
	Findings []Finding `json:"findings,omitempty"`
}

// Sum adds up a search.
type Sum struct {
	Search
	Tally campaign.Tally `json:"tally"`

	story *campaign.Story
}

// Tested is how often a guarantee was put to the test in a story.
type Tested struct {
	Story     string `json:"story"`
	Guarantee string `json:"guarantee"`
	campaign.Rulings
	// Chances are the schedules that were played of the story, if its default schedule tests the
	// guarantee.
	Chances int `json:"chances,omitempty"`
}

// Finding is schedules of a story that failed alike.
type Finding struct {
	// Key names the finding from one campaign to the next: it says nothing of versions, seeds or
	// schedules.
	Key       string `json:"key"`
	Story     string `json:"story"`
	Strategy  string `json:"strategy"`
	Seed      uint64 `json:"seed"`
	Guarantee string `json:"guarantee,omitempty"`
	Signature string `json:"signature"`
	// Cause names the trouble of its schedules. One of several deviations counts as any of its
	// signature, and has no cause if there is no other.
	Cause   string `json:"cause,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	// Count is how many schedules there are, of all Schedules that were played of the story.
	Count     int `json:"count"`
	Schedules int `json:"schedules"`
	// First is the first of them, and afterwards what it was shrunk to. Divides says what divides
	// such schedules from those that held, if that was looked for.
	First   campaign.Schedule `json:"first"`
	Divides string            `json:"divides,omitempty"`
	// Text says what First is, if it was played again, and Page is where its page is.
	Text string `json:"text,omitempty"`
	Page string `json:"page,omitempty"`

	// Plan belongs to the schedule, and Given are the first few of the search, as they were chosen.
	Plan  *campaign.Story     `json:"-"`
	Of    Search              `json:"-"`
	Given []campaign.Schedule `json:"-"`
}

// Kind says in a word what is wrong: violated, missing or unknown.
func (f *Finding) Kind() string {
	return (&campaign.Cluster{Guarantee: f.Guarantee, Missing: f.Missing}).Kind()
}

// What says what its schedules have in common, in a line.
func (f *Finding) What() string {
	return (&campaign.Cluster{Signature: f.Signature, Cause: f.Cause}).What()
}

// Merger merges blobs, of which it keeps no more than sums.
type Merger struct {
	first   Header
	from    string
	digests map[int]string // of the jobs
	sums    map[int]*Sum   // by the search
	shards  map[[2]int]bool
	cut     []string
}

// NewMerger returns one without any blobs.
func NewMerger() *Merger {
	return &Merger{digests: make(map[int]string), sums: make(map[int]*Sum), shards: make(map[[2]int]bool)}
}

// Add merges a blob. One that is cut off counts as far as it goes. With an error, such as that it
// doesn't belong to the others, there is no result.
func (m *Merger) Add(name string, r io.Reader) error {
	var header *Header
	var records int
	whole, err := scan(r, func(_ []byte, l line) error {
		switch {
		case header == nil && l.Header == nil:
			return errors.New("it has no header: it is no blob")
		case l.Header != nil:
			header = l.Header
			if m.from == "" {
				m.first, m.from = *header, name
			}
			return header.fits(m.first, name, m.from)
		case l.Search != nil:
			if m.sums[l.Number-1] == nil {
				m.sums[l.Number-1] = &Sum{Search: *l.Search}
			}
		case l.Record != nil:
			records++
			return m.record(l.Record)
		}
		return nil
	})
	if header == nil && err == nil {
		m.cut = append(m.cut, name+" is cut off: it has not even a header")
		return nil
	}
	if err != nil && !strings.HasPrefix(err.Error(), name) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return err
	}
	if at := [2]int{header.Shard, header.Of}; whole {
		m.shards[at] = true
	} else {
		m.cut = append(m.cut, fmt.Sprintf("%s is cut off: it has %d of %s", name, records, phrase.Count(header.To-header.From, "job")))
	}
	return nil
}

func (m *Merger) record(r *Record) error {
	sum := m.sums[r.Search]
	if sum == nil {
		return fmt.Errorf("job %d is of a search that the blob doesn't have", r.Index)
	}
	if known, twice := m.digests[r.Index]; twice {
		if known != r.Digest {
			return exit.Coded(exit.Internal, fmt.Errorf("%d to %d of %s (%s, seed %d) came out as %s in one blob and as %s in another: the same schedules must come out the same",
				r.From+1, r.To, sum.Story, sum.Strategy, sum.Seed, known, r.Digest))
		}
		return nil
	}
	m.digests[r.Index] = r.Digest
	sum.Tally.Merge(r.Tally)
	sum.story = cmp.Or(sum.story, r.Story)
	return nil
}

// Cut says which blobs were not whole.
func (m *Merger) Cut() []string { return m.cut }

// Result returns what all blobs come to.
func (m *Merger) Result() (*Result, error) {
	if m.from == "" {
		return nil, errors.New("there is no blob to merge")
	}
	h := m.first
	r := &Result{Version: h.Version, Campaign: h.Campaign, Digest: h.Digest, Behaviour: h.Behaviour, Jobs: len(m.digests), AllJobs: h.Jobs, All: h.Schedules}
	for _, i := range slices.Sorted(maps.Keys(m.sums)) {
		sum := m.sums[i]
		if sum.Tally.Tried == 0 {
			continue
		}
		sum.Tally.Failed = sum.Tally.Failures()
		r.Schedules += sum.Tally.Tried
		r.Searches = append(r.Searches, *sum)
	}
	if r.Missing = m.missing(); len(r.Missing) == 0 {
		r.All = r.Schedules // no forecast any more
		for i := range r.Searches {
			r.Searches[i].All = r.Searches[i].Tally.Tried
		}
	}
	r.Tested = testedIn(r.Searches)
	r.Short = short(r.Tested, h.Promised, len(r.Missing) == 0)
	r.find()
	return r, nil
}

// missing says which jobs no blob has: by the number of their shards if all are of one partition.
func (m *Merger) missing() (all []string) {
	of, same := 0, true
	for at := range m.shards { // order does not matter: any of them will do
		same = same && (of == 0 || of == at[1])
		of = at[1]
	}
	if same && of > 0 && len(m.digests) < m.first.Jobs {
		for i := range of {
			if !m.shards[[2]int{i + 1, of}] {
				all = append(all, fmt.Sprintf("shard %d of %d", i+1, of))
			}
		}
		return all
	}
	for i := 0; i < m.first.Jobs; i++ {
		from := i
		for i < m.first.Jobs && m.digests[i] == "" {
			i++
		}
		if i > from {
			all = append(all, fmt.Sprintf("jobs %d to %d of %d", from+1, i, m.first.Jobs))
		}
	}
	return all
}

// testedIn says how often guarantees were put to the test in each story, in the order of the
// stories.
func testedIn(sums []Sum) (all []Tested) {
	for _, sum := range sums {
		ids := slices.Concat(slices.Sorted(maps.Keys(sum.Tally.Rulings)), sum.Tests)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			i := slices.IndexFunc(all, func(t Tested) bool { return t.Story == sum.Story && t.Guarantee == id })
			if i < 0 {
				i, all = len(all), append(all, Tested{Story: sum.Story, Guarantee: id})
			}
			all[i].Rulings = all[i].Plus(sum.Tally.Rulings[id])
			if slices.Contains(sum.Tests, id) {
				all[i].Chances += sum.Tally.Tried
			}
		}
	}
	return all
}

// few chances say nothing of a guarantee of which nothing is promised.
const few = 100

// short says which guarantees were put to the test less often than was promised. Any that had some
// chances has to be tested once; in all stories each that was promised has to have some.
func short(tested []Tested, promised map[string]int, stories bool) (all []string) {
	sums, ids := make(map[string]Tested), slices.Sorted(maps.Keys(promised))
	for _, t := range (&Result{Tested: tested}).ByGuarantee() {
		sums[t.Guarantee], ids = t, append(ids, t.Guarantee)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		t, percent := sums[id], promised[id]
		switch {
		case percent > 0 && t.Chances == 0 && t.Schedules == 0 && stories:
			all = append(all, fmt.Sprintf("%s was promised, and no default schedule of a story puts it to the test", id))
		case 100*t.Schedules < percent*t.Chances:
			all = append(all, fmt.Sprintf("%s was put to the test in %d of %s, and %d%% were promised", id, t.Schedules, phrase.Count(t.Chances, "schedule"), percent))
		case percent == 0 && t.Schedules == 0 && t.Chances >= few:
			all = append(all, fmt.Sprintf("%s was put to the test in none of %s whose default schedule does so", id, phrase.Count(t.Chances, "schedule")))
		}
	}
	return all
}

// find gathers the findings of all searches: what did harm comes first.
func (r *Result) find() {
	played := r.played()
	for _, caused := range []bool{true, false} {
		for _, sum := range r.Searches {
			for _, f := range sum.Tally.Failed {
				if caused != (f.Cause != "") {
					continue
				}
				i := slices.IndexFunc(r.Findings, func(known Finding) bool {
					return known.Story == sum.Story && known.Signature == f.Signature && (known.Cause == f.Cause || !caused)
				})
				if i < 0 {
					i = len(r.Findings)
					r.Findings = append(r.Findings, Finding{
						Key: digest([]string{sum.Story, f.Signature + f.Cause})[:10], Story: sum.Story, Strategy: sum.Strategy, Seed: sum.Seed,
						Guarantee: f.Invariant, Signature: f.Signature, Cause: f.Cause, Missing: f.Missing,
						First: f.Schedule, Divides: f.Divides, Plan: sum.story, Of: sum.Search, Given: f.Given,
					})
				}
				r.Findings[i].Count += f.Count
			}
		}
	}
	for i := range r.Findings {
		r.Findings[i].Schedules = played[r.Findings[i].Story]
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(campaign.Rank(a.Kind()), campaign.Rank(b.Kind())) })
}

// Code is the exit code of a campaign with this result.
func (r *Result) Code() int {
	code := exit.Held
	if r.Schedules == 0 || len(r.Missing) > 0 || len(r.Short) > 0 {
		code = exit.Unknown
	}
	return exit.Worse(code, codeOf(r.Findings))
}
