package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// suite is the result of one target of the Makefile.
type suite struct {
	Name  string
	Slots int    // that it takes as a whole
	Log   string // the file with its output
	Tests []*test
	Began time.Time // zero before it does
	Ended time.Time // zero before it has
	Err   error     // how it ended
}

func (s *suite) took() time.Duration { return s.Ended.Sub(s.Began) }

// cases are the suite's innermost tests, and whatever failed without one of its tests failing: a
// test that holds others, or a package. (JUnit counts those that hold others as well.)
func (s *suite) cases() []*test {
	return slices.DeleteFunc(slices.Clone(s.Tests), func(t *test) bool {
		return slices.ContainsFunc(s.Tests, func(other *test) bool { return other.below(t) && (!bad(t) || bad(other)) }) || t.Name == "" && !bad(t)
	})
}

// nameOf names a test with its suite and its package, where that is another name.
func (s *suite) nameOf(t *test) string {
	words := []string{s.Name + ":"}
	for _, word := range []string{t.Package, t.Name} {
		if word != "" && word != s.Name {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// bad reports whether a test calls for somebody.
func bad(t *test) bool { return !slices.Contains([]outcome{passed, skipped}, t.Outcome) }

func (s *suite) bad() []*test {
	return slices.DeleteFunc(s.cases(), func(t *test) bool { return !bad(t) })
}

// counts are how many tests came out how. One that had not ended has failed.
func counts(cases []*test) map[outcome]int {
	n := make(map[outcome]int)
	for _, t := range cases {
		if t.over() {
			n[t.Outcome]++
		} else {
			n[failed]++
		}
	}
	return n
}

// summarize says in a screenful what came of all suites, what failed first, and where to look. slow
// is how slow the machine was in a time.
func summarize(w io.Writer, suites []*suite, slow func(from, to time.Time) float64, took time.Duration, junit string) {
	var all []*test
	names := make(map[*test]string)
	for _, s := range suites {
		all = append(all, s.cases()...)
		for _, t := range s.Tests {
			names[t] = s.nameOf(t)
		}
		for _, t := range s.bad() {
			tellFailure(w, s, t, slow)
		}
	}
	for _, t := range all {
		if why := t.attributes[repeated]; why != "" {
			fmt.Fprintf(w, "repeated: %s\n  %s\n\n", names[t], why)
		}
	}
	n := counts(all)
	fmt.Fprintf(w, "%d passed, %d failed, %d unknown, %d skipped in %s\n\n", n[passed], n[failed], n[unknown], n[skipped], round(took))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "suite\twall time\tpassed\tfailed\tunknown\tskipped\t")
	for _, s := range suites {
		n := counts(s.cases())
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t", s.Name, round(s.took()), n[passed], n[failed], n[unknown], n[skipped])
		if s.Err != nil {
			fmt.Fprintf(table, "  %s", strings.ReplaceAll(s.Err.Error(), "\n", ", "))
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // the summary's writer never fails

	reasons := make(map[string]int)
	for _, t := range all {
		if t.Outcome == skipped {
			reasons[t.reason()]++
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintln(w, "\nskipped:")
	}
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b))
	}) {
		fmt.Fprintf(w, "  %4d  %s\n", reasons[reason], reason)
	}
	fmt.Fprintf(w, "\nall tests: %s\n", junit)
}

// tellFailure prints the name of the test, why it failed, how busy the machine was, the command
// that repeats it, and where its evidence is.
func tellFailure(w io.Writer, s *suite, t *test, slow func(from, to time.Time) float64) {
	word := t.Outcome
	if !t.over() {
		word = failed
	}
	fmt.Fprintf(w, "%s: %s (%s)\n  %s\n", word, s.nameOf(t), round(t.Took), t.reason())
	if !t.Began.IsZero() {
		fmt.Fprintf(w, "  the machine was %.1f times as slow as that of docs/performance.md\n", slow(t.Began, t.Began.Add(t.Took)))
	}
	fmt.Fprintf(w, "  again: %s\n  see %s\n\n", s.again(t), cmp.Or(t.attributes[artifacts], s.Log))
}

// again is the command that runs one test again.
func (s *suite) again(t *test) string {
	switch {
	case strings.HasPrefix(t.Name, "make "):
		return t.Name
	case s.Name == "stories":
		return "make e2e FOCUS='" + regexp.QuoteMeta(t.Name) + "'"
	case t.Name == "":
		return "make e2e-" + s.Name
	}
	var parts []string
	for part := range strings.SplitSeq(t.Name, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	return "make e2e-" + s.Name + " RUN='" + strings.ReplaceAll(strings.Join(parts, "/"), "$", "$$") + "'"
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
