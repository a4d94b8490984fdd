// Package browser tries pages in Chromium, by the DevTools protocol.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
)

// Schemes are the color schemes that readers can prefer.
var Schemes = []string{"light", "dark"}

// Page is a page in a browser. Its methods fail the test in which it was opened.
type Page struct {
	t   testing.TB
	ctx context.Context
	tab *chromium
}

// program is the executable of the browser, as Debian calls it.
const program = "chromium"

// missing ends a test that needs a part which isn't there.
func missing(t testing.TB, part string) {
	t.Helper()
	text := part + " is missing: run ci/browser/install.sh .cache/browser"
	if os.Getenv("FENCELAB_REQUIRE_BROWSER") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// Open shows a file in Chromium, whose reader prefers a scheme, in 1400 by 900 pixels. The test
// fails if the browser has complained when it ends, or if the page has asked for anything beside
// itself.
func Open(t testing.TB, scheme, file string) *Page {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		missing(t, program)
	}
	ctx, cancel := machine.WithBudget(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	// It leaves a socket in its directory, whose name may not be as long as the test's.
	own, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	tab, err := startChromium(ctx, t.Cleanup, program, own, scheme)
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	p := &Page{t, ctx, tab}
	absolute, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	p.must(tab.resize(ctx, 1400, 900))
	p.must(tab.open(ctx, (&url.URL{Scheme: "file", Path: absolute}).String()))
	t.Cleanup(func() {
		if trouble := tab.trouble(); len(trouble) > 0 {
			t.Errorf("the browser complained %d times, first: %q", len(trouble), trouble[0])
		}
	})
	return p
}

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Value decodes what an expression says.
func (p *Page) Value(expression string, into any) {
	p.t.Helper()
	data, err := p.tab.eval(p.ctx, expression)
	p.must(err)
	if into != nil {
		p.must(json.Unmarshal(data, into))
	}
}

// Eval returns what an expression says, as text.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	var value any
	p.Value(expression, &value)
	return fmt.Sprint(value)
}

// Press has keys pressed, one after the other.
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.must(p.tab.press(p.ctx, key))
	}
}

// Resize sets the page's size in pixels.
func (p *Page) Resize(width, height int) {
	p.t.Helper()
	p.must(p.tab.resize(p.ctx, width, height))
}

// Screenshot is a PNG of what is in view, kept as an artefact of that name.
func (p *Page) Screenshot(name string) []byte {
	p.t.Helper()
	png, err := p.tab.screenshot(p.ctx)
	p.must(err)
	p.must(os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), png, 0o644))
	return png
}

// Violation describes a barrier in a page for people with a screen reader or a keyboard.
type Violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// Axe has axe-core look at the page, as it is in cache, and returns what is serious or critical.
func (p *Page) Axe(cache string) (found []Violation) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "axe-*.min.js"))
	if err != nil || len(files) == 0 {
		missing(p.t, "axe")
	}
	axe, err := os.ReadFile(files[0])
	p.must(err)
	var all []Violation
	p.Value(fmt.Sprintf(`(0, eval)(%q), axe.run().then(r => r.violations)`, axe), &all)
	for _, v := range all {
		if v.Impact == "serious" || v.Impact == "critical" {
			found = append(found, v)
		}
	}
	return found
}
