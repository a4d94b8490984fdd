package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/fencelab/fencelab/lab/child"
)

// firefox is a tab of Firefox, driven by WebDriver BiDi: https://w3c.github.io/webdriver-bidi
type firefox struct {
	connection net.Conn
	tab        string

	mu         sync.Mutex
	calls      int
	answers    map[int]chan answer
	address    string
	complaints []string
	ended      error
}

// answer is the browser's response to a command, or an event.
type answer struct {
	Type    string          `json:"type"`
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   string          `json:"error"`
	Message string          `json:"message"`
}

// profile has it prefer a scheme, and ask for nothing of its own.
const profile = `user_pref("layout.css.prefers-color-scheme.content-override", %d);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("app.update.enabled", false);
user_pref("app.normandy.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,");
`

func startFirefox(ctx context.Context, cleanup func(func()), program, own, scheme string) (driver, error) {
	dark := 1
	if scheme == "dark" {
		dark = 0
	}
	if err := os.WriteFile(filepath.Join(own, "user.js"), fmt.Appendf(nil, profile, dark), 0o600); err != nil {
		return nil, fmt.Errorf("write its profile: %w", err)
	}
	log := filepath.Join(own, "log")
	cmd := exec.Command(program, "--headless", "--no-remote", "--profile", own, "--remote-debugging-port=0")
	cmd.Env = append(os.Environ(), "HOME="+own, "TMPDIR="+own, "MOZ_DISABLE_CONTENT_SANDBOX=1", "MOZ_CRASHREPORTER_DISABLE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	process, err := child.Start(program, cmd, log)
	if err != nil {
		return nil, err
	}
	cleanup(func() { _ = process.Kill() })
	address, err := listens(ctx, process, log)
	if err != nil {
		return nil, err
	}
	b := &firefox{answers: map[int]chan answer{}}
	if b.connection, _, _, err = ws.Dial(ctx, address+"/session"); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	cleanup(func() { _ = b.connection.Close() })
	go b.read()
	if err := b.call(ctx, "session.new", map[string]any{"capabilities": map[string]any{}}, nil); err != nil {
		return nil, err
	}
	if err := b.call(ctx, "session.subscribe", map[string]any{"events": []string{"log.entryAdded", "network.beforeRequestSent"}}, nil); err != nil {
		return nil, err
	}
	var tab struct{ Context string }
	err = b.call(ctx, "browsingContext.create", map[string]any{"type": "tab"}, &tab)
	b.tab = tab.Context
	return b, err
}

// listens waits until the browser says where it can be reached.
func listens(ctx context.Context, process *child.Process, log string) (string, error) {
	for {
		file, err := os.Open(log)
		if err != nil {
			return "", fmt.Errorf("read its log: %w", err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if _, address, found := strings.Cut(lines.Text(), "WebDriver BiDi listening on "); found {
				_ = file.Close()
				return strings.TrimSpace(address), nil
			}
		}
		_ = file.Close()
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("it didn't say where it listens: %w; it printed\n%s", context.Cause(ctx), process.Tail())
		case <-process.Exited():
			return "", fmt.Errorf("it ended: %w; it printed\n%s", process.Failure(), process.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// read hands answers to those who wait for them, and takes note of events.
func (b *firefox) read() {
	for {
		data, err := wsutil.ReadServerText(b.connection)
		var a answer
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		b.mu.Lock()
		if err != nil {
			b.ended = err
			for id, waiting := range b.answers {
				close(waiting)
				delete(b.answers, id)
			}
			b.mu.Unlock()
			return
		}
		if a.Type == "event" {
			b.event(a)
		} else if waiting := b.answers[a.ID]; waiting != nil {
			waiting <- a
			delete(b.answers, a.ID)
		}
		b.mu.Unlock()
	}
}

// event takes note of one of the page's, with the lock held.
func (b *firefox) event(a answer) {
	var e struct {
		Level, Text string
		Context     string
		Request     struct{ URL string }
	}
	if err := json.Unmarshal(a.Params, &e); err != nil {
		b.complaints = append(b.complaints, "event "+a.Method+": "+err.Error())
		return
	}
	switch {
	case a.Method == "log.entryAdded":
		b.complaints = append(b.complaints, e.Level+": "+e.Text)
	case a.Method == "network.beforeRequestSent" && e.Context == b.tab && e.Request.URL != b.address && !strings.HasPrefix(e.Request.URL, "data:"):
		b.complaints = append(b.complaints, "the page asks for "+e.Request.URL)
	}
}

// call has the browser do something, and decodes what comes of it.
func (b *firefox) call(ctx context.Context, method string, params, into any) error {
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return fmt.Errorf("%s: %w", method, b.ended)
	}
	b.calls++
	id, waiting := b.calls, make(chan answer, 1)
	b.answers[id] = waiting
	b.mu.Unlock()
	data, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err == nil {
		err = wsutil.WriteClientText(b.connection, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case a, ok := <-waiting:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser is gone", method)
		case a.Type == "error":
			return fmt.Errorf("%s: %s: %s", method, a.Error, a.Message)
		case into == nil:
			return nil
		}
		return json.Unmarshal(a.Result, into)
	}
}

func (b *firefox) open(ctx context.Context, address string) error {
	b.mu.Lock()
	b.address = address
	b.mu.Unlock()
	return b.call(ctx, "browsingContext.navigate", map[string]any{"context": b.tab, "url": address, "wait": "complete"}, nil)
}

func (b *firefox) eval(ctx context.Context, expression string) ([]byte, error) {
	var said struct {
		Type             string
		Result           struct{ Value string }
		ExceptionDetails struct{ Text string }
	}
	err := b.call(ctx, "script.evaluate", map[string]any{
		"expression": "Promise.resolve((" + expression + ")).then(v => JSON.stringify(v ?? null))", "target": map[string]any{"context": b.tab}, "awaitPromise": true,
	}, &said)
	if err == nil && said.Type != "success" {
		err = errors.New("evaluate: " + said.ExceptionDetails.Text)
	}
	return []byte(said.Result.Value), err
}

func (b *firefox) press(ctx context.Context, key string) error {
	if name, ok := map[string]string{"ArrowLeft": "\ue012", "ArrowRight": "\ue014"}[key]; ok { // as WebDriver numbers them
		key = name
	}
	return b.call(ctx, "input.performActions", map[string]any{"context": b.tab, "actions": []any{map[string]any{
		"type": "key", "id": "keyboard", "actions": []any{map[string]any{"type": "keyDown", "value": key}, map[string]any{"type": "keyUp", "value": key}},
	}}}, nil)
}

func (b *firefox) resize(ctx context.Context, width, height int) error {
	return b.call(ctx, "browsingContext.setViewport", map[string]any{"context": b.tab, "viewport": map[string]any{"width": width, "height": height}}, nil)
}

func (b *firefox) screenshot(ctx context.Context) ([]byte, error) {
	var said struct{ Data string }
	if err := b.call(ctx, "browsingContext.captureScreenshot", map[string]any{"context": b.tab}, &said); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(said.Data)
}

func (b *firefox) trouble() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complaints
}
