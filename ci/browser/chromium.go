package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// chromium is a tab of Chromium.
type chromium struct {
	tab     context.Context
	address string

	mu         sync.Mutex
	complaints []string
}

func startChromium(ctx context.Context, cleanup func(func()), program, own, scheme string) (*chromium, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Env("TMPDIR="+own))
	ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
	cleanup(cancel)
	tab, _ := chromedp.NewContext(ctx)
	cleanup(func() { chromedp.Cancel(tab) }) // which waits for the browser's end
	b := &chromium{tab: tab}
	chromedp.ListenTarget(tab, b.event)
	prefers := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	return b, chromedp.Run(tab, network.Enable(), log.Enable(), emulation.SetEmulatedMedia().WithFeatures(prefers))
}

func (b *chromium) event(event any) {
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
		if e.Request.URL != b.address {
			b.complaints = append(b.complaints, "the page asks for "+e.Request.URL)
		}
	}
}

func (b *chromium) trouble() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complaints
}

// run performs actions in the tab, whose context has the browser.
func (b *chromium) run(actions ...chromedp.Action) error { return chromedp.Run(b.tab, actions...) }

func (b *chromium) open(_ context.Context, address string) error {
	b.mu.Lock()
	b.address = address
	b.mu.Unlock()
	return b.run(chromedp.Navigate(address))
}

func (b *chromium) eval(_ context.Context, expression string) ([]byte, error) {
	var value json.RawMessage
	err := b.run(chromedp.Evaluate(expression, &value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	return value, err
}

func (b *chromium) press(_ context.Context, key string) error {
	if name, ok := map[string]string{"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight}[key]; ok {
		key = name
	}
	return b.run(chromedp.KeyEvent(key))
}

func (b *chromium) resize(_ context.Context, width, height int) error {
	return b.run(chromedp.EmulateViewport(int64(width), int64(height)))
}

func (b *chromium) screenshot(context.Context) (png []byte, err error) {
	err = b.run(chromedp.CaptureScreenshot(&png))
	return png, err
}
