package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// The specs report their progress in the form of go test -json, of which ci/e2e makes one JUnit
// file and one summary with the other tests. Ginkgo's own reports come at the end of a run, if it
// has one.

// event is one line of go test -json.
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"`
	Output  string  `json:",omitempty"`
	Key     string  `json:",omitempty"`
	Value   string  `json:",omitempty"`
}

// events returns the events of a spec that has ended, or of the suite.
func events(r *SpecReport) (all []event) {
	for _, entry := range r.ReportEntries {
		all = append(all, event{Action: "attr", Key: entry.Name, Value: entry.StringRepresentation()})
	}
	action := "pass"
	switch {
	case r.Failed():
		action = "fail"
		all = append(all, event{Action: "output", Output: fmt.Sprintf("%s\n%s\n%s\n", r.FailureMessage(), r.FailureLocation(), r.CombinedOutput())})
	case r.State == types.SpecStateSkipped:
		action = "skip"
		all = append(all, event{Action: "output", Output: r.Failure.Message + "\n"})
	default:
		all = append(all, event{Action: "output", Output: r.CombinedOutput() + "\n"})
	}
	return append(all, event{Action: action, Elapsed: r.RunTime.Seconds()})
}

// tellEvents appends events to the file that FENCELAB_EVENTS names, in one write, since specs run
// side by side.
func tellEvents(test string, all ...event) {
	file := os.Getenv("FENCELAB_EVENTS")
	if file == "" {
		return
	}
	var lines bytes.Buffer
	for _, e := range all {
		e.Time, e.Package, e.Test = time.Now(), "stories", test
		if err := json.NewEncoder(&lines).Encode(e); err != nil {
			panic(err) // an event is plain data
		}
	}
	to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		Fail("report the stories: " + err.Error())
	}
	defer to.Close()
	if _, err := to.Write(lines.Bytes()); err != nil {
		Fail("report the stories: " + err.Error())
	}
}

// chosenByFocus reports whether a spec runs, or would if it did not skip itself.
func chosenByFocus(r *SpecReport) bool {
	return r.State != types.SpecStateSkipped || r.Failure.Message != ""
}

var _ = ReportBeforeEach(func(r SpecReport) {
	if chosenByFocus(&r) {
		tellEvents(r.FullText(), event{Action: "run"})
	}
})

var _ = ReportAfterEach(func(r SpecReport) {
	if chosenByFocus(&r) {
		tellEvents(r.FullText(), events(&r)...)
	}
})

// A failure beside the specs, such as in the setup, has no spec to report it.
var _ = ReportAfterSuite("the events", func(r Report) {
	action, output := "pass", ""
	for _, reason := range r.SpecialSuiteFailureReasons {
		output += reason + "\n"
	}
	if !r.SuiteSucceeded {
		action = "fail"
	}
	tellEvents("", event{Action: "output", Output: output}, event{Action: action, Elapsed: r.RunTime.Seconds()})
})
