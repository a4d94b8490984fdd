package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/scenarios/history"
)

// cache is where browser.sh puts axe, as seen from this package.
const cache = "../../.cache/browser"

// tab is a page in a browser, and what the browser complained of.
type tab struct {
	context.Context
	t  testing.TB
	mu sync.Mutex
	// complaints are errors on the console, and requests are what the page asked for
	// beside itself.
	complaints, requests []string
}

// do performs actions.
func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what an expression says.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var value any
	b.do(chromedp.Evaluate(expression, &value))
	return fmt.Sprint(value)
}

// browse opens the page of a run.
func browse(t testing.TB, run *Run) *tab {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("FENCELAB_REQUIRE_BROWSER") != "" {
			t.Fatalf("there is no browser: %v; run scenarios/page/browser.sh .cache/browser", err)
		}
		t.Skip("there is no browser: run scenarios/page/browser.sh .cache/browser")
	}
	file := filepath.Join(t.TempDir(), Name)
	if err := os.WriteFile(file, render(t, run), 0o644); err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp("", "browser") // it leaves a socket there, whose name may not be as long as the test's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(1500, 1000), chromedp.NoSandbox, chromedp.Env("TMPDIR="+own))
	ctx, cancel := machine.WithBudget(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { chromedp.Cancel(ctx) }) // which waits for the browser's end
	b := &tab{Context: ctx, t: t}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			b.complaints = append(b.complaints, fmt.Sprintf("console.%s", e.Type))
		case *log.EventEntryAdded:
			b.complaints = append(b.complaints, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address {
				b.requests = append(b.requests, e.Request.URL)
			}
		}
	})
	b.do(network.Enable(), log.Enable(), chromedp.Navigate(address), chromedp.WaitReady("#table tbody tr"))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.complaints) > 0 {
			t.Errorf("the browser complained %d times, first: %q", len(b.complaints), b.complaints[0])
		}
		if len(b.requests) > 0 {
			t.Errorf("the page asked for %q", b.requests)
		}
	})
	return b
}

// set has a field of the filter changed, as its user would.
func (b *tab) set(id, value string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(fmt.Sprintf(`(() => {
		const field = document.getElementById(%q);
		field.value = %q;
		field.dispatchEvent(new Event("input", {bubbles: true}));
	})()`, id, value), nil))
}

// picture keeps a screenshot as an artefact.
func (b *tab) picture(name string) {
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o644); err != nil {
		b.t.Error(err)
	}
}

func TestPageInABrowser(t *testing.T) {
	for name, run := range runs(t) {
		t.Run(name, func(t *testing.T) {
			b := browse(t, run)
			// What is drawn is what the model says.
			var lanes []string
			b.do(chromedp.Evaluate(`[...document.querySelectorAll("[data-lane]")].map(g => g.dataset.lane)`, &lanes))
			var want []string
			for _, group := range Lanes(run) {
				for _, lane := range group.Lanes {
					want = append(want, lane.ID)
				}
			}
			if !slices.Equal(lanes, want) {
				t.Errorf("the page has the lanes %q, want %q", lanes, want)
			}
			drawn := b.eval(`[...document.querySelectorAll("[data-lane] path:not(.mark):not(.differs)")].reduce((n, p) => n + p.getAttribute("d").split("M").length - 1, 0)`)
			inModel := b.eval(`JSON.parse(document.getElementById("model").textContent).lanes.reduce((n, l) => n + (l.bands || []).length, 0)`)
			if drawn != inModel || drawn == "0" {
				t.Errorf("%s bands are drawn and %s are in the model", drawn, inModel)
			}
			if n := b.eval(`document.querySelectorAll("#table tbody tr").length`); n != fmt.Sprint(len(run.Events)) {
				t.Errorf("the table has %s events, want %d", n, len(run.Events))
			}
			if b.eval(`getComputedStyle(document.querySelector("#lanes path.on, #lanes path.up")).fill`) == "rgb(0, 0, 0)" {
				t.Error("the page has no style")
			}
			b.picture(name)
		})
	}
}

func TestKeyboardAndSearch(t *testing.T) {
	run := runs(t)["stale"]
	broken := run.broken()
	b := browse(t, run)
	chosen := func() string { return b.eval(`document.querySelector("tr.chosen")?.id`) }
	if got := chosen(); got != fmt.Sprintf("e%d", broken.Second) {
		t.Errorf("the page opens at %s, not at the event that broke the promise", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowLeft))
	if got := chosen(); got != fmt.Sprintf("e%d", broken.Second-1) {
		t.Errorf("the arrow leads to %s", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	if got, hash := chosen(), b.eval(`location.hash`); got != fmt.Sprintf("e%d", broken.Second+1) || hash != "#"+got {
		t.Errorf("the arrows lead to %s, and the address to %s", got, hash)
	}

	// The moment of the violation: the status is believed and not true.
	b.do(chromedp.Evaluate(fmt.Sprintf(`location.hash = "#e%d"`, broken.Second), nil),
		chromedp.WaitVisible(fmt.Sprintf("#e%d.chosen", broken.Second)))
	if told := b.eval(`document.getElementById("detail").innerText`); !strings.Contains(told, "poweredOn: false (not true)") || !strings.Contains(told, "runs, boot worker-1#2") {
		t.Errorf("the page doesn't say that the status was wrong:\n%s", told)
	}

	b.do(chromedp.KeyEvent("/"))
	if got := b.eval(`document.activeElement.id`); got != "find" {
		t.Errorf("a slash leads to %q", got)
	}
	b.set("find", "workload-started")
	if got := b.eval(`document.getElementById("found").textContent`); got != fmt.Sprintf("2 of %d", len(run.Events)) {
		t.Errorf("the search finds %q", got)
	}
	b.set("find", "")
	b.set("layer", "bmc")
	if got := b.eval(`[...document.querySelectorAll("#table tbody tr")].filter(r => !r.hidden).map(r => r.cells[3].textContent).join()`); got != "bmc-command,bmc-command" {
		t.Errorf("the filter leaves %q", got)
	}
	b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil), chromedp.KeyEvent(kb.ArrowLeft))
	if told := b.eval(`document.getElementById("detail").innerText`); !strings.Contains(told, "The exchange with the BMC") || !strings.Contains(told, "executed") {
		t.Errorf("the page doesn't show the exchange with the BMC:\n%s", told)
	}

	// A click into a lane chooses the nearest of its events.
	b.set("layer", "")
	b.do(chromedp.Evaluate(`(() => {
		const box = document.getElementById("lanes").getBoundingClientRect(), lane = JSON.parse(document.getElementById("model").textContent).lanes.find(l => l.id === "controllers: reboot");
		document.getElementById("lanes").dispatchEvent(new MouseEvent("click", {clientX: box.right - 70, clientY: box.top + lane.y, bubbles: true}));
	})()`, nil))
	if got := b.eval(`document.querySelector("tr.chosen").cells[6].textContent`); got != "reboot" {
		t.Errorf("a click into the lane of the reboot controller chose an event of %s", got)
	}
}

func TestHostileTextDoesNotRun(t *testing.T) {
	b := browse(t, hostileRun())
	b.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	if title := b.eval(`document.title`); !strings.Contains(title, "onerror") {
		t.Errorf("the title became %q", title)
	}
	if !strings.Contains(b.eval(`document.getElementById("detail").innerText`), "onerror") {
		t.Error("the text is not shown as it is")
	}
}

// TestAccessibility has axe look at each page, light and dark.
func TestAccessibility(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(cache, "axe-*.min.js"))
	if err != nil || len(files) == 0 {
		if os.Getenv("FENCELAB_REQUIRE_BROWSER") != "" {
			t.Fatal("there is no axe: run scenarios/page/browser.sh .cache/browser")
		}
		t.Skip("there is no axe: run scenarios/page/browser.sh .cache/browser")
	}
	axe, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, runs(t)["stale"])
	for _, scheme := range []string{"light", "dark"} {
		b.do(chromedp.ActionFunc(func(ctx context.Context) error { return emulate(ctx, scheme) }))
		var found []struct {
			ID, Impact, Help string
			Nodes            []struct{ HTML string }
		}
		var out string
		b.do(chromedp.Evaluate(string(axe)+`;axe.run().then(r => JSON.stringify(r.violations))`, &out,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Impact == "serious" || f.Impact == "critical" {
				t.Errorf("%s: %s (%s): %s, for instance %s", scheme, f.ID, f.Impact, f.Help, f.Nodes[0].HTML)
			}
		}
		b.picture(scheme)
	}
}

// emulate has the reader prefer light or dark.
func emulate(ctx context.Context, scheme string) error {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}).Do(ctx)
}

// BenchmarkOpen measures how long a browser takes to show a run of 5,000 events,
// and to choose the next one.
func BenchmarkOpen(b *testing.B) {
	var opened, stepped float64
	for b.Loop() {
		tab := browse(b, long(5000))
		var took float64
		tab.do(chromedp.Evaluate(`(() => { const e = performance.getEntriesByType("navigation")[0]; return e.loadEventEnd - e.startTime })()`, &took))
		opened += took
		tab.do(chromedp.Evaluate(`(() => { const began = performance.now(); for (let i = 0; i < 100; i++) document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true})); return (performance.now() - began) / 100 })()`, &took))
		stepped += took
	}
	b.ReportMetric(opened/float64(b.N), "ms/open")
	b.ReportMetric(stepped/float64(b.N), "ms/step")
}

// TestDecisionBehindAnEffect: whoever chooses an effect is told what its controller had
// decided on which facts, and what became different in the object.
func TestDecisionBehindAnEffect(t *testing.T) {
	run := runs(t)["split-brain"]
	i := slices.IndexFunc(run.Events, func(e history.Event) bool {
		return e.Kind == history.ControllerEffect && e.Actor == "remediation" && e.Value == "delete Node/worker-1"
	})
	if i < 0 {
		t.Fatal("the remediation controller deletes no Node")
	}
	b := browse(t, run)
	told := func(seq int) string {
		b.do(chromedp.Evaluate(fmt.Sprintf(`location.hash = "#e%d"`, seq), nil), chromedp.WaitVisible(fmt.Sprintf("#e%d.chosen", seq)))
		return b.eval(`document.getElementById("detail").innerText`)
	}
	text := told(i + 1)
	for _, want := range []string{"What remediation had decided", "DeleteNode", "answersRequest", "What changed in Node/worker-1", "deleted"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't say %q of the deletion of the Node:\n%s", want, text)
		}
	}
	i = slices.IndexFunc(run.Events, func(e history.Event) bool { return e.Kind == history.AnnotationSet && e.Actor == "remediation" })
	if text := told(i + 1); !strings.Contains(text, "metadata.annotations.reboot.metal3.io/machine-remediation") || !strings.Contains(text, "nothing \u2192 ") {
		t.Errorf("the page doesn't show what the annotation changed:\n%s", text)
	}
}

// TestBesideTheRunThatHeld: the page of a schedule that fails shows where it parts from
// one that held.
func TestBesideTheRunThatHeld(t *testing.T) {
	run := runs(t)["searched"]
	if run == nil || run.Held == nil {
		t.Fatal("there is no run beside one that held")
	}
	b := browse(t, run)
	if n := b.eval(`document.querySelectorAll("[data-beside]").length`); n == "0" || n == "1" {
		t.Errorf("%s lanes are drawn beside each other", n)
	}
	same, here, _ := part(run.Events, run.Held.Events)
	if same == 0 || here == nil {
		t.Fatalf("%d events are the same, and then comes %v", same, here)
	}
	if got := b.eval(`document.querySelector("#beside ~ p a").getAttribute("href")`); got != fmt.Sprintf("#e%d", here.Seq) {
		t.Errorf("the page parts at %s, want event %d", got, here.Seq)
	}
	b.picture("beside")
}
