package report

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// The elements of a JUnit file, the form that continuous integration systems read.
type (
	junitSuite struct {
		XMLName    xml.Name        `xml:"testsuite"`
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Seconds    string          `xml:"time,attr"`
		Began      string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Seconds string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Error   *junitMessage `xml:"error,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Said    string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junitOf is junit.xml. A scenario that came out as expected passes, even if a guarantee
// was to be violated; one without a verdict is an error.
func junitOf(l *campaign.Ledger) ([]byte, error) {
	suite := junitSuite{
		Name: "fencelab", Tests: l.Counts.Scenarios, Failures: l.Counts.Failed, Errors: l.Counts.Unknown + l.Counts.Errors, Skipped: l.Counts.Skipped,
		Seconds: fmt.Sprintf("%.3f", l.Wall), Began: l.Began.Format(time.RFC3339),
		Properties: []junitProperty{
			{"version", l.Version}, {"backend", l.Backend}, {"seed", strconv.FormatUint(l.Seed, 10)}, {"strategy", l.Strategy},
		},
	}
	for _, e := range l.Results {
		c := junitCase{Class: "fencelab." + l.Backend, Name: e.Scenario, Seconds: fmt.Sprintf("%.3f", e.Wall)}
		m := &junitMessage{Message: e.Reason}
		for _, run := range e.Runs {
			m.Text += run.Text
		}
		switch e.Status {
		case campaign.Passed:
			if e.Expected != string(invariant.Held) {
				c.Said = "as expected: " + e.Expected
			}
		case campaign.Failed:
			c.Failure = m
		case campaign.Skipped:
			c.Skipped = m
		default:
			c.Error = m
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write junit.xml: %w", err)
	}
	return append([]byte(xml.Header), append(data, '\n')...), nil
}
