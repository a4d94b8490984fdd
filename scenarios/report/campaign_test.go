package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
)

// TestCampaignPage: the page of a campaign leads to what failed, says since when that is known,
// what is missing and what nothing was put to the test in, and shows the nights before it.
func TestCampaignPage(t *testing.T) {
	nights := t.TempDir()
	finding := func(key string) shard.Finding {
		return shard.Finding{
			Key: key, Story: "cut-off", Strategy: "orders", Seed: 1, Guarantee: "at-most-one", Signature: "at-most-one: <two> " + key, Count: 3, Schedules: 40, Text: "brief & clear", Divides: "failed in 3 of 3 schedules in which the <cache> was old",
			First: campaign.Schedule{Deviations: []scenarios.Deviation{{Step: "fencer/api/2", Delay: scenarios.Duration(time.Second)}}},
		}
	}
	var last string
	for i, keys := range [][]string{{"old"}, {"old", "steady"}, {"steady", "fresh"}} {
		dir := filepath.Join(nights, string(rune('a'+i)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := &shard.Result{
			Version: "v1", Campaign: "nightly", Schedules: 40, All: 50, Missing: []string{"shard 4 of 5"},
			Searches: []shard.Sum{
				{Search: shard.Search{Story: "cut-off", Strategy: "orders", Survey: shard.Survey{All: 40}}, Tally: campaign.Tally{Tried: 40, Held: 35, Violated: 3, Unknown: 2, Unjudged: 2, Closest: map[string]campaign.Call{
					"at-most-one":        {First: "the host was off at 1.0 s", Second: "the Node was deleted at 1.25 s", Margin: 250 * time.Millisecond, Schedule: campaign.Schedule{Number: 7, Draw: true}},
					"remediated-in-time": {First: "asked", Second: "done", Margin: 2 * time.Second, Limit: time.Minute},
				}}},
				{Search: shard.Search{Story: "cut-off", Strategy: "random", Seed: 3}, Tally: campaign.Tally{Closest: map[string]campaign.Call{
					"at-most-one": {First: "off", Second: "deleted", Margin: 20 * time.Millisecond, Schedule: campaign.Schedule{Number: 8, Deviations: []scenarios.Deviation{{Step: "fencer/api/2", Delay: scenarios.Duration(time.Second)}}}},
				}}},
				{Search: shard.Search{Story: "idle", Strategy: "orders"}, Tally: campaign.Tally{Tried: 1, Held: 1}},
			},
			Tested: []shard.Tested{{Story: "cut-off", Guarantee: "at-most-one", Rulings: campaign.Rulings{Judged: 60, Excused: 2, Schedules: 30}, Chances: 40},
				{Story: "cut-off", Guarantee: "node-restored", Rulings: campaign.Rulings{Judged: 4, Excused: 4}, Chances: 40}, {Story: "cut-off", Guarantee: "no-false-fence", Chances: 40}},
		}
		for _, key := range keys {
			f := finding(key)
			f.Page = filepath.Join(dir, "cut-off-sim-"+key)
			r.Findings = append(r.Findings, f)
		}
		var out, talk bytes.Buffer
		c := &Console{Out: &out, Talk: &talk, Dir: dir}
		began := time.Date(2026, 11, 26+i, 1, 0, 0, 0, time.UTC)
		if err := c.Campaign(&Campaign{Began: began, CoreSeconds: 7200, Result: r}); err != nil {
			t.Fatal(err)
		}
		last = dir
		if !strings.Contains(out.String(), "nightly: 40 of 50 schedules: 36 held, 3 violated, 2 unknown; ") || !strings.Contains(out.String(), "  not played: shard 4 of 5\n") {
			t.Errorf("it prints\n%s", out.String())
		}
	}
	// Neither another campaign nor half a report is one of its nights.
	for name, text := range map[string]string{"other": `{"campaign":"weekly","began":"2026-11-20T00:00:00Z"}`, "half": `{"campaign":"nigh`} {
		if err := os.Mkdir(filepath.Join(nights, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(nights, name, CampaignFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, err := LoadCampaign(last)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := earlierThan(own, last)
	if err != nil || len(earlier) != 2 {
		t.Fatalf("%d campaigns were before it (%v)", len(earlier), err)
	}
	data, err := os.ReadFile(filepath.Join(last, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	again, err := campaignPage(own, earlier)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("drawn again from the report it is another page (%v)", err)
	}
	for _, want := range []string{
		`<span class="verdict violated">violated</span>`, "40 of 50", "shard 4 of 5", "no guarantee was put to the test", "at-most-one: &lt;two&gt; steady", "brief &amp; clear", "in which the &lt;cache&gt; was old",
		`<th scope="row">at-most-one</th><td>cut-off</td><td>20ms: off, and deleted</td><td><small>fencer/api/2 delayed by 1s</small></td>`, "2s left: done, of the 1m0s after asked",
		`gap</span> node-restored: excused only`, `gap</span> no-false-fence: never`, `<td class="number">2</td><td class="number">2</td>`, "Not put to the test by any story: ",
		`<td class="number">3 of 40</td><td class="short">2026-11-27 01:00</td><td class="short"><a href="cut-off-sim-steady/report.html">its page</a></td>`,
		`<td class="number">3 of 40</td><td class="short"><span class="verdict violated">new</span></td><td class="short"><a href="cut-off-sim-fresh/report.html">its page</a></td>`,
		`<td class="number">75 %</td><td class="number">60</td><td class="number">2</td>`, `<a href="../a/index.html">2026-11-26 01:00</a>`, "about 2.0 core hours",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't say %q", want)
		}
	}
	for _, unwanted := range []string{"cut-off-sim-old", "../c/", "250ms", "weekly", "http://", "https://", "<script"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the page has %q", unwanted)
		}
	}
	if _, err := json.Marshal(own); err != nil {
		t.Error(err)
	}
	// The comparison of two nights.
	var out bytes.Buffer
	d := (&Console{Out: &out}).Compared(earlier[1], own)
	if d.Code() != 1 || !strings.HasPrefix(out.String(), "nightly: 1 new, 1 gone, 0 rarer, 1 known; from v1 (2026-11-27 01:00:00) to v1 (2026-11-28 01:00:00)\n") || !strings.Contains(out.String(), "  new    violated fresh cut-off: ") {
		t.Errorf("the comparison ends with %d and says\n%s", d.Code(), out.String())
	}
	slow := *own
	if slow.CoreSeconds = 9001; strings.Contains(out.String(), "slower") {
		t.Error("a night that took as long is slower")
	}
	out.Reset()
	(&Console{Out: &out}).Compared(own, &slow)
	if !strings.Contains(out.String(), "  slower 3m45.025s a schedule, and 3m0s before\n") {
		t.Errorf("the comparison says\n%s", out.String())
	}
}
