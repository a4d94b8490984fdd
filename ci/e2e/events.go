package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// module begins the names of packages.
const module = "github.com/fencelab/fencelab/"

// event is one line of what go test -json says (go doc test2json). The suite of stories says it in
// the same form.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	Test        string  `json:",omitempty"`
	Elapsed     float64 `json:",omitempty"` // seconds
	Output      string  `json:",omitempty"`
	Key         string  `json:",omitempty"`
	Value       string  `json:",omitempty"`
	ImportPath  string  `json:",omitempty"` // of what is built
	FailedBuild string  `json:",omitempty"`
}

// outcome is the result of a test.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	unknown outcome = "unknown" // a story without a verdict
	skipped outcome = "skipped"
	running outcome = "running"
	waiting outcome = "waiting" // for its turn among parallel tests
)

// What a test can say of itself, with T.Attr or as an entry of Ginkgo's report.
const (
	artifacts = "artifacts" // the directory of its evidence
	verdict   = "verdict"   // of its story
	repeated  = "repeated"  // why its story was played once more
)

// test is the result of a test or, without a name, of a whole package.
type test struct {
	Package, Name string
	Outcome       outcome
	Began         time.Time
	Took          time.Duration
	output        []string
	attributes    map[string]string
}

// over reports whether the test has ended.
func (t *test) over() bool { return t.Outcome != running && t.Outcome != waiting }

// where a message of a test comes from.
var where = regexp.MustCompile(`^\w+\.go:\d+: `)

// reason is the first line of the last message: what a test says last is why it ended, and its
// first line says most.
func (t *test) reason() string {
	if !t.over() {
		return "it had not ended"
	}
	var first, last string
	for line := range strings.Lines(strings.Join(t.output, "")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if first == "" {
			first = line
		}
		if prefix := where.FindString(line); prefix != "" {
			last = strings.TrimPrefix(line, prefix)
		}
	}
	if last != "" {
		return last
	}
	return first
}

// parse takes the events of a suite. A line that is none was cut short: it is being written, or its
// writer was killed.
func parse(data []byte) (tests []*test) {
	known := make(map[[2]string]*test)
	builds := make(map[string][]string)
	for line := range bytes.Lines(data) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			continue
		}
		if e.Action == "build-output" && !strings.HasPrefix(e.Output, "# ") { // which names the package
			builds[e.ImportPath] = append(builds[e.ImportPath], e.Output)
		}
		if e.Package == "" {
			continue // it is about a build
		}
		e.Package = strings.TrimPrefix(e.Package, module)
		t := known[[2]string{e.Package, e.Test}]
		if t == nil {
			t = &test{Package: e.Package, Name: e.Test, Outcome: running, Began: e.Time, attributes: make(map[string]string)}
			known[[2]string{e.Package, e.Test}], tests = t, append(tests, t)
		}
		t.take(e)
		t.output = append(builds[e.FailedBuild], t.output...)
	}
	return tests
}

func (t *test) take(e event) {
	switch e.Action {
	case "pause":
		t.Outcome = waiting
	case "cont":
		t.Outcome, t.Began = running, e.Time
	case "output":
		t.output = append(t.output, e.Output)
	case "attr":
		t.attributes[e.Key] = e.Value
	case "pass":
		t.Outcome = passed
	case "skip":
		t.Outcome = skipped
	case "fail":
		t.Outcome = failed
		if t.attributes[verdict] == string(unknown) {
			t.Outcome = unknown
		}
	}
	if t.over() {
		t.Took = time.Duration(e.Elapsed * float64(time.Second))
	}
}

// below reports whether a test is part of another, or of a package.
func (t *test) below(other *test) bool {
	return t.Package == other.Package && t != other && (other.Name == "" || strings.HasPrefix(t.Name, other.Name+"/"))
}
