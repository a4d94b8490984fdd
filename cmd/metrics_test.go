package cmd

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd/oncluster"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// TestMetrics: whoever follows a campaign shows Prometheus what it sees, on this machine alone
// unless its user says otherwise, and stops with the campaign.
func TestMetrics(t *testing.T) {
	ctx, over := context.WithCancel(t.Context())
	defer over()
	var said bytes.Buffer
	c := &campaigner{listen: ":0"}
	c.Talk = &said
	if err := c.serve(ctx, "nightly"); err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/metrics`).FindString(said.String())
	scrape := func() string {
		t.Helper()
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	shows := func(lines ...string) {
		t.Helper()
		text := scrape()
		for _, line := range lines {
			if !strings.Contains(text, "fencelab_campaign_"+line+"\n") {
				t.Errorf("there is no %s in\n%s", line, text)
			}
		}
	}
	c.metrics.played(90, 40, 2)
	shows(`schedules{campaign="nightly",state="planned"} 90`, `schedules{campaign="nightly",state="played"} 40`, `schedules{campaign="nightly",state="failed"} 2`, `answers{campaign="nightly"} 1`)
	summaries := map[int]oncluster.Summary{1: {Schedules: 40, Failed: 2, Findings: []string{"a", "b"}}, 3: {Schedules: 20, Failed: 1, Findings: []string{"b"}}}
	c.metrics.followed(&oncluster.State{Done: 2, Of: 5, Failed: 7}, summaries)
	shows(`schedules{campaign="nightly",state="played"} 60`, `shards{campaign="nightly",state="planned"} 5`, `shards{campaign="nightly",state="whole"} 2`,
		`pods{campaign="nightly",state="failed"} 7`, `findings{campaign="nightly"} 2`)
	c.metrics.followed(nil, summaries) // what was known stays
	shows(`answers{campaign="nightly"} 0`, `shards{campaign="nightly",state="whole"} 2`)

	taken := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	for listen, code := range map[string]int{"nine": exit.Invalid, taken: exit.Environment} {
		if got := exit.Code((&campaigner{listen: listen}).serve(ctx, "nightly")); got != code {
			t.Errorf("--metrics %s ends with %d, want %d", listen, got, code)
		}
	}
	over()
	for { // closing takes a moment
		conn, err := net.Dial("tcp", taken)
		if err != nil {
			break
		}
		conn.Close()
	}
	var none *metrics
	none.played(1, 1, 1)
	none.followed(nil, nil)
}
