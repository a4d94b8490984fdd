package page

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/ci/browser"
	"github.com/fencelab/fencelab/scenarios/history"
)

// cache is where ci/browser/install.sh puts axe, as seen from this package.
const cache = "../../.cache/browser"

// browse opens the page of a run.
func browse(t testing.TB, scheme string, run *Run) *browser.Page {
	t.Helper()
	file := filepath.Join(t.TempDir(), Name)
	if err := os.WriteFile(file, render(t, run), 0o644); err != nil {
		t.Fatal(err)
	}
	return browser.Open(t, scheme, file)
}

// set has a field of the filter changed, as its user would.
func set(b *browser.Page, id, value string) {
	b.Value(fmt.Sprintf(`(() => {
		const field = document.getElementById(%q);
		field.value = %q;
		field.dispatchEvent(new Event("input", {bubbles: true}));
	})()`, id, value), nil)
}

// told returns the page's text about an event after choosing it.
func told(b *browser.Page, seq int) string {
	b.Value(fmt.Sprintf(`new Promise(done => {
		addEventListener("hashchange", () => setTimeout(done), {once: true});
		if (location.hash === "#e%[1]d") done(); else location.hash = "#e%[1]d";
	})`, seq), nil)
	return b.Eval(`document.getElementById("detail").innerText`)
}

// TestPageInABrowser: the drawing matches the model.
func TestPageInABrowser(t *testing.T) {
	for name, run := range runs(t) {
		t.Run(name, func(t *testing.T) {
			b := browse(t, "light", run)
			var lanes []string
			b.Value(`[...document.querySelectorAll("[data-lane]")].map(g => g.dataset.lane)`, &lanes)
			var want []string
			for _, group := range Lanes(run) {
				for _, lane := range group.Lanes {
					want = append(want, lane.ID)
				}
			}
			if !slices.Equal(lanes, want) {
				t.Errorf("the page has the lanes %q, want %q", lanes, want)
			}
			drawn := b.Eval(`[...document.querySelectorAll("[data-lane] path:not(.mark):not(.differs):not(.late)")].reduce((n, p) => n + p.getAttribute("d").split("M").length - 1, 0)`)
			inModel := b.Eval(`JSON.parse(document.getElementById("model").textContent).lanes.filter(l => l.name !== "late").reduce((n, l) => n + (l.bands || []).length, 0)`)
			if drawn != inModel || drawn == "0" {
				t.Errorf("%s bands are drawn and %s are in the model", drawn, inModel)
			}
			if n := b.Eval(`document.querySelectorAll("#table tbody tr").length`); n != fmt.Sprint(len(run.Events)) {
				t.Errorf("the table has %s events, want %d", n, len(run.Events))
			}
			if b.Eval(`getComputedStyle(document.querySelector("#lanes path.on, #lanes path.up")).fill`) == "rgb(0, 0, 0)" {
				t.Error("the page has no style")
			}
		})
	}
}

// overlaps says which texts of a lane that are shown overlap.
const overlaps = `[...document.querySelectorAll("#lanes [data-lane]")].flatMap(lane => {
	const shown = [...lane.querySelectorAll("text")].filter(t => t.style.display !== "none").map(t => [t.getBoundingClientRect(), t.textContent]);
	shown.sort((a, b) => a[0].left - b[0].left);
	return shown.filter(([box], i) => i > 0 && box.left < shown[i - 1][0].right - 1).map(([, text]) => lane.dataset.lane + ": " + text);
})`

// cutOff says which texts that are shown begin left of where the lanes are in view.
const cutOff = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
	const edge = document.querySelector("#board .labels").getBoundingClientRect().right;
	done([...document.querySelectorAll("#lanes [data-lane] text")].filter(t => t.style.display !== "none").map(t => [t.getBoundingClientRect(), t.textContent])
		.filter(([box]) => box.left < edge - 1 && box.right > edge + 1).map(([, text]) => text));
})))`

// TestScreens: at each width, light and dark, the first screen says what came of
// the run, nothing sticks out of the page, texts don't overlap, and axe finds nothing.
func TestScreens(t *testing.T) {
	run := runs(t)["searched"]
	for _, scheme := range browser.Schemes {
		t.Run(scheme, func(t *testing.T) {
			b := browse(t, scheme, run)
			for _, width := range []int{1400, 800, 400} {
				b.Resize(width, 900)
				b.Screenshot(fmt.Sprintf("%s-%d", scheme, width))
				if b.Eval(`document.scrollingElement.scrollWidth > innerWidth`) != "false" {
					t.Errorf("at %d pixels the page is wider than the window", width)
				}
				// On the first screen stand the verdict, the promise and the chain of causes;
				// on a wide one the deviation, from when it was sent, and the end of what broke
				// the promise as well.
				first := []string{".verdict", ".reason", ".order", ".story li"}
				if width == 1400 {
					first = append(first, `[data-lane="scenario: late 1"]`, "#ends circle:last-child")
				}
				for _, selector := range first {
					var bottom float64
					if b.Value(fmt.Sprintf(`document.querySelector(%q)?.getBoundingClientRect().bottom ?? 0`, selector), &bottom); bottom <= 0 || bottom > 900 {
						t.Errorf("at %d pixels %s ends at %.0f, not on the first screen", width, selector, bottom)
					}
				}
				if texts := b.Eval(cutOff); texts != "[]" {
					t.Errorf("at %d pixels texts are cut at the left: %s", width, texts)
				}
				if width == 800 && b.Eval(`document.querySelector(".order li:last-child").getBoundingClientRect().bottom <= document.querySelector(".moment").getBoundingClientRect().top`) != "true" {
					t.Error("the moment covers the event that broke the promise")
				}
				if texts := b.Eval(overlaps); texts != "[]" {
					t.Errorf("at %d pixels texts overlap: %s", width, texts)
				}
				for _, found := range b.Axe(cache) {
					t.Errorf("at %d pixels, %s (%s): %s, for instance %s", width, found.ID, found.Impact, found.Help, found.Nodes[0].HTML)
				}
			}
		})
	}
}

// TestFoldAndZoom: quiet lanes are folded until they are asked for, and zooming in makes the lanes
// wider, not the letters.
func TestFoldAndZoom(t *testing.T) {
	run := runs(t)["split-brain"]
	b := browse(t, "light", run)
	shown := func() (n int) {
		b.Value(`[...document.querySelectorAll(".labels .label")].filter(l => l.offsetHeight > 0).length`, &n)
		return n
	}
	all := 0
	for _, group := range Lanes(run) {
		all += len(group.Lanes)
	}
	folded := shown()
	if folded == 0 || folded >= all {
		t.Errorf("%d of %d lanes are shown", folded, all)
	}
	b.Value(`document.getElementById("unfold").click()`, nil)
	if n := shown(); n != all {
		t.Errorf("unfolded, %d of %d lanes are shown", n, all)
	}
	// Each lane stands beside its label.
	if apart := b.Eval(`(() => {
		const labels = [...document.querySelectorAll("#board .label")], lanes = [...document.querySelectorAll("[data-lane]")];
		return lanes.filter((l, i) => Math.abs(l.getCTM().f + document.getElementById("lanes").getBoundingClientRect().top - labels[i].getBoundingClientRect().top) > 1).map(l => l.dataset.lane);
	})()`); apart != "[]" {
		t.Errorf("lanes stand elsewhere than their labels: %s", apart)
	}
	var before, after struct{ Width, Letters float64 }
	size := `({width: document.getElementById("lanes").getBoundingClientRect().width, letters: document.querySelector("#lanes .tick").getBoundingClientRect().width})`
	b.Value(size, &before)
	b.Press("+")
	b.Value(size, &after)
	if after.Width != 2*before.Width || after.Letters != before.Letters {
		t.Errorf("zoomed in, lanes of %.0f are %.0f wide, and a text of %.1f is %.1f", before.Width, after.Width, before.Letters, after.Letters)
	}
	if texts := b.Eval(overlaps); texts != "[]" {
		t.Errorf("zoomed in, texts overlap: %s", texts)
	}
	b.Press("-")
	if b.Value(size, &after); after != before {
		t.Errorf("zoomed out again, it is %v, was %v", after, before)
	}
}

// TestDeedsAreLabelled: what controllers did has the name of the decision, a panic can't be missed,
// and what came late is an arrow from when it was sent.
func TestDeedsAreLabelled(t *testing.T) {
	all := runs(t)
	for _, c := range []struct{ run, lane, text string }{
		{"split-brain", "controllers: remediation", "DeleteNode"},
		{"panic", "controllers: fencer", "panic"},
		{"searched", "scenario: late 1", "reboot's patch of BareMetalHost/worker-1 came 1m0s late"},
	} {
		t.Run(c.run, func(t *testing.T) {
			b := browse(t, "light", all[c.run])
			var shown []string
			b.Value(fmt.Sprintf(`[...document.querySelectorAll('[data-lane="%s"] text')].filter(t => t.style.display !== "none").map(t => t.textContent)`, c.lane), &shown)
			if !slices.Contains(shown, c.text) {
				t.Errorf("the lane %s says %q, not %q", c.lane, shown, c.text)
			}
		})
	}
}

func TestKeyboardAndSearch(t *testing.T) {
	run := runs(t)["stale"]
	broken := run.broken()
	b := browse(t, "light", run)
	chosen := func() string { return b.Eval(`document.querySelector("tr.chosen")?.id`) }
	if got := chosen(); got != fmt.Sprintf("e%d", broken.Second) {
		t.Errorf("the page opens at %s, not at the event that broke the promise", got)
	}
	b.Press("ArrowLeft")
	if got := chosen(); got != fmt.Sprintf("e%d", broken.Second-1) {
		t.Errorf("the arrow leads to %s", got)
	}
	b.Press("ArrowRight", "ArrowRight")
	if got, hash := chosen(), b.Eval(`location.hash`); got != fmt.Sprintf("e%d", broken.Second+1) || hash != "#"+got {
		t.Errorf("the arrows lead to %s, and the address to %s", got, hash)
	}

	// The moment of the violation: the status is believed and not true.
	if told := told(b, broken.Second); !strings.Contains(told, "poweredOn: false (not true)") || !strings.Contains(told, "runs, boot worker-1#2") {
		t.Errorf("the page doesn't say that the status was wrong:\n%s", told)
	}

	b.Press("/")
	if got := b.Eval(`document.activeElement.id`); got != "find" {
		t.Errorf("a slash leads to %q", got)
	}
	set(b, "find", "workload-started")
	if got := b.Eval(`document.getElementById("found").textContent`); got != fmt.Sprintf("2 of %d", len(run.Events)) {
		t.Errorf("the search finds %q", got)
	}
	set(b, "find", "")
	set(b, "layer", "bmc")
	if got := b.Eval(`[...document.querySelectorAll("#table tbody tr")].filter(r => !r.hidden).map(r => r.cells[3].textContent).join()`); got != "bmc-command,bmc-command" {
		t.Errorf("the filter leaves %q", got)
	}
	b.Value(`document.activeElement.blur()`, nil)
	b.Press("ArrowLeft")
	if told := b.Eval(`document.getElementById("detail").innerText`); !strings.Contains(told, "The exchange with the BMC") || !strings.Contains(told, "executed") {
		t.Errorf("the page doesn't show the exchange with the BMC:\n%s", told)
	}

	// A click into a lane chooses the nearest of its events.
	set(b, "layer", "")
	b.Value(`(() => {
		const box = document.getElementById("lanes").getBoundingClientRect(), lane = document.querySelector("[data-lane='controllers: reboot']").getBoundingClientRect();
		document.getElementById("lanes").dispatchEvent(new MouseEvent("click", {clientX: box.right - 70, clientY: lane.top + 8, bubbles: true}));
	})()`, nil)
	if got := b.Eval(`document.querySelector("tr.chosen").cells[6].textContent`); got != "reboot" {
		t.Errorf("a click into the lane of the reboot controller chose an event of %s", got)
	}
}

func TestHostileTextDoesNotRun(t *testing.T) {
	b := browse(t, "light", hostileRun())
	b.Press("ArrowRight", "ArrowRight")
	if title := b.Eval(`document.title`); !strings.Contains(title, "onerror") {
		t.Errorf("the title became %q", title)
	}
	if !strings.Contains(b.Eval(`document.getElementById("detail").innerText`), "onerror") {
		t.Error("the text is not shown as it is")
	}
}

// BenchmarkOpen measures how long a browser takes to show a run of 5,000 events,
// and to choose the next one.
func BenchmarkOpen(b *testing.B) {
	var opened, stepped float64
	for b.Loop() {
		tab := browse(b, "light", long(5000))
		var took float64
		tab.Value(`(() => { const e = performance.getEntriesByType("navigation")[0]; return e.loadEventEnd - e.startTime })()`, &took)
		opened += took
		tab.Value(`(() => { const began = performance.now(); for (let i = 0; i < 100; i++) document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true})); return (performance.now() - began) / 100 })()`, &took)
		stepped += took
	}
	b.ReportMetric(opened/float64(b.N), "ms/open")
	b.ReportMetric(stepped/float64(b.N), "ms/step")
}

// TestDecisionBehindAnEffect: choosing an effect shows its controller's decision, the facts behind
// it, and the changes in the object.
func TestDecisionBehindAnEffect(t *testing.T) {
	run := runs(t)["split-brain"]
	i := slices.IndexFunc(run.Events, func(e history.Event) bool {
		return e.Kind == history.ControllerEffect && e.Actor == "remediation" && e.Value == "delete Node/worker-1"
	})
	if i < 0 {
		t.Fatal("the remediation controller deletes no Node")
	}
	b := browse(t, "light", run)
	text := told(b, i+1)
	for _, want := range []string{"What remediation had decided", "DeleteNode", "answersRequest", "What changed in Node/worker-1", "deleted"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't say %q of the deletion of the Node:\n%s", want, text)
		}
	}
	i = slices.IndexFunc(run.Events, func(e history.Event) bool { return e.Kind == history.AnnotationSet && e.Actor == "remediation" })
	if text := told(b, i+1); !strings.Contains(text, "metadata.annotations.reboot.metal3.io/machine-remediation") || !strings.Contains(text, "nothing \u2192 ") {
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
	b := browse(t, "light", run)
	if n := b.Eval(`document.querySelectorAll("[data-beside]").length`); n == "0" || n == "1" {
		t.Errorf("%s lanes are drawn beside each other", n)
	}
	same, here, _ := part(run.Events, run.Held.Events)
	if same == 0 || here == nil {
		t.Fatalf("%d events are the same, and then comes %v", same, here)
	}
	if got := b.Eval(`document.querySelector("#beside ~ p a").getAttribute("href")`); got != fmt.Sprintf("#e%d", here.Seq) {
		t.Errorf("the page parts at %s, want event %d", got, here.Seq)
	}
	b.Screenshot("beside")
}

// pictures are the failures whose first screens docs/reports.md shows, each as docs/page-NAME.png.
var pictures = []string{"split-brain", "searched", "panic", "unknown", "lab"}

// TestPictures: the pictures in docs/reports.md match today's page.
func TestPictures(t *testing.T) {
	all := runs(t)
	for _, name := range pictures {
		t.Run(name, func(t *testing.T) {
			if all[name] == nil {
				t.Fatal("there is no such run in testdata")
			}
			b := browse(t, "light", all[name])
			got := b.Screenshot(name)
			file := filepath.Join("../../docs", "page-"+name+".png")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; run with -update", err)
			}
			if apart := distance(t, got, want); apart > alike {
				t.Errorf("%s shows another page: %.1f %% apart; run with -update and look at it", file, 100*apart)
			}
		})
	}
}

// alike is the greatest difference between two pictures of the same page. Fonts differ by machine.
const alike = 0.03

// distance compares two PNGs coarsely: 0 is the same, 1 is black for white.
func distance(t *testing.T, a, b []byte) float64 {
	t.Helper()
	const wide, high = 64, 40
	var coarse [2][wide * high]float64
	for i, data := range [][]byte{a, b} {
		picture, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		size, count := picture.Bounds(), [wide * high]float64{}
		for y := range size.Dy() {
			for x := range size.Dx() {
				cell := y*high/size.Dy()*wide + x*wide/size.Dx()
				coarse[i][cell] += float64(color.GrayModel.Convert(picture.At(x, y)).(color.Gray).Y) / 255
				count[cell]++
			}
		}
		for cell := range coarse[i] {
			coarse[i][cell] /= count[cell]
		}
	}
	sum := 0.0
	for cell := range coarse[0] {
		sum += math.Abs(coarse[0][cell] - coarse[1][cell])
	}
	return sum / (wide * high)
}
