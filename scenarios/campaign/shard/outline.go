// Package shard cuts the searches of a campaign into jobs that need nothing of each other, keeps
// what came of them in blobs, and merges the blobs of any partition into the same result. It plays
// nothing.
package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Search is one search of a campaign: a story, a strategy and a seed.
type Search struct {
	Story    string `json:"story"`
	Strategy string `json:"strategy"`
	Seed     uint64 `json:"seed"`
	// Schedules is how many are to be played; 0 for all that the strategy has.
	Schedules int `json:"budget,omitempty"`
	// Depth is how many deviations are combined, and Within how late a step comes at most.
	Depth  int                `json:"depth,omitempty"`
	Within scenarios.Duration `json:"within,omitempty"`
	Survey
}

// Same says whether two are the same search, whatever is known of it.
func (s Search) Same(o Search) bool {
	s.Survey, o.Survey = Survey{}, Survey{}
	return reflect.DeepEqual(s, o)
}

// Name is the strategy's, with the depth.
func (s *Search) Name() string {
	if s.Depth > 1 {
		return fmt.Sprintf("%s, depth %d", s.Strategy, s.Depth)
	}
	return s.Strategy
}

// units is how many parts the search can be cut into, and each how many schedules those have about.
func (s *Search) units() (n int, each float64) {
	if s.Branches > 0 {
		return s.Branches, float64(s.All) / float64(s.Branches)
	}
	return s.All, 1
}

// Survey says what a search comes to before it is made. It is the same wherever that is found out.
type Survey struct {
	// Default says that the default schedule alone is played: it breaks a guarantee, as the story
	// expects or not, and nothing has to be searched for.
	Default bool `json:"default,omitempty"`
	// All is how many schedules are played. If the search plays combinations to their end it has
	// Branches, of which any number can be, and All is a forecast.
	All      int `json:"schedules"`
	Branches int `json:"branches,omitempty"`
	// Whole says that the strategy learns, so that the search can't be cut.
	Whole bool `json:"whole,omitempty"`
	// Weight is how much work a schedule is, in events: that of a few on average.
	Weight int `json:"weight"`
	// Tests are the guarantees that the default schedule puts to the test, and Digest is that of
	// its history.
	Tests  []string `json:"tests,omitempty"`
	Digest string   `json:"digest"`
}

// Job is consecutive schedules of a search. It needs nothing but the campaign, and what comes of it
// is the same whoever plays it.
type Job struct {
	// Index is its place among all jobs of the campaign, and Search that of its search.
	Index  int `json:"index"`
	Search int `json:"search"`
	// From and To are the first schedule and the one after the last, or branches if the search has
	// any.
	From int `json:"from"`
	To   int `json:"to"`
}

const (
	// least is how many schedules a job has at least, unless its search has fewer, and most how
	// many jobs a campaign is cut into about: blobs stay small, and the largest clusters have work.
	least = 20
	most  = 10000
)

// Outline is a campaign as it is played: its searches, and the jobs that they are cut into.
type Outline struct {
	// Version is that of fencelab, Campaign the campaign's name, and Digest identifies its file and
	// its stories.
	Version  string
	Campaign string
	Digest   string
	// Promised says in which percentage of its chances each of these guarantees is tested.
	Promised map[string]int
	Searches []Search
	// Schedules is how many there are in all.
	Schedules int
	Jobs      []Job
}

// NewOutline cuts the searches of a campaign, which were surveyed. A story of which the default
// schedule alone is played needs one search.
func NewOutline(version string, c *scenarios.Campaign, digest string, searches []Search) *Outline {
	o := &Outline{Version: version, Campaign: c.Metadata.Name, Digest: digest, Promised: c.Spec.Guarantees}
	alone := make(map[string]bool)
	for _, s := range searches {
		if s.Default && alone[s.Story] || s.All == 0 {
			continue
		}
		alone[s.Story] = s.Default
		o.Searches = append(o.Searches, s)
		o.Schedules += s.All
	}
	size := max(least, (o.Schedules+most-1)/most)
	for i, s := range o.Searches {
		n, each := s.units()
		size := max(1, int(float64(size)/max(1, each)))
		if s.Whole {
			size = n
		}
		for from := 0; from < n; from += size {
			o.Jobs = append(o.Jobs, Job{Index: len(o.Jobs), Search: i, From: from, To: min(from+size, n)})
		}
	}
	return o
}

// Shard returns the jobs of the i-th of n shards, from 1: consecutive ones, so that it has to know
// few stories, and about as much work as the others.
func (o *Outline) Shard(i, n int) ([]Job, error) {
	switch {
	case n < 1 || i < 1 || i > n:
		return nil, fmt.Errorf("shard %d of %d: choose one from 1 to the number of shards", i, n)
	case n > len(o.Jobs):
		return nil, fmt.Errorf("shard %d of %d: the campaign has only %s, so that shards would play nothing; use at most that many", i, n, phrase.Count(len(o.Jobs), "job"))
	}
	total := 0
	for _, j := range o.Jobs {
		total += o.weight(j)
	}
	begins, before, next := make([]int, n+1), 0, 1 // each has one job at least, and leaves one for each that follows
	for at, j := range o.Jobs {
		for next < n && at >= next && (before*n >= next*total || len(o.Jobs)-at == n-next) && begins[next-1] < at {
			begins[next] = at
			next++
		}
		before += o.weight(j)
	}
	begins[n] = len(o.Jobs)
	return o.Jobs[begins[i-1]:begins[i]], nil
}

func (o *Outline) weight(j Job) int { return o.About(j) * max(1, o.Searches[j.Search].Weight) }

// About is how many schedules a job has, or may have if its search has branches.
func (o *Outline) About(j Job) int {
	_, each := o.Searches[j.Search].units()
	return max(1, int(float64(j.To-j.From)*each))
}

// Behaviour identifies what the programs do: programs of the same version that were changed play
// other default schedules, or search them elsewhere.
func (o *Outline) Behaviour() string { return digest(o.Searches) }

// DigestOf identifies a campaign with its stories, wherever their files are.
func DigestOf(c *scenarios.Campaign, stories []*scenarios.Scenario) string {
	return digest([]any{c.Metadata.Name, c.Spec.Searches, c.Spec.Guarantees, stories})
}

// digest is one of plain data.
func digest(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // unreachable: it was read from a file
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
