package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
)

// TestRulesFile takes YAML and JSON, and refuses what is no list of rules.
func TestRulesFile(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct{ text, want string }{
		{"- name: lie\n  when: {host: fake-*}\n  effect: {report: Off}\n- {name: deaf, preset: off-ignored}\n", ""},
		{`[{"name": "lie", "effect": {"report": "Off"}}, {"name": "deaf", "effect": {"hang": true}}]`, ""},
		{"- name: lie\n  name: lie\n", `line 2: mapping key "name" already defined`},
		{"- name: [\n", "line 1"}, {"- {name: a, effect: {hang: true}}\n---\n- {}\n", "one document"},
		{"- {name: lie, effect: {sleep: 3}}\n", `unknown field "effect.sleep"`},
		{"null", "no list of rules"}, {"", "no list of rules"}, {"name: lie", "reading rules"},
		{strings.Repeat("- {}\n", 1000), "and 2989 more"},
		{strings.Repeat(" ", maxRulesFile+1), "more than"},
	} {
		rules, _, err := readRules(t.Context(), write(c.text))
		switch {
		case c.want == "" && (err != nil || len(rules) != 2):
			t.Errorf("%s: %v, %v", c.text, rules, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%.50s: %v, want %q", c.text, err, c.want)
		}
	}
	if _, _, err := readRules(t.Context(), "/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file without an end: %v", err)
	}
}

// TestRulesForIPMI are refused where nothing is served that they could bend, and one of
// which a part is for others isn't.
func TestRulesForIPMI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	const text = "- {name: lie, effect: {report: Off}}\n\n- name: deaf\n  when: {via: ipmi}\n  effect: {hang: true}\n- {name: off, preset: ipmi-reset-when-off}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const why = ": its via is for clients that come by IPMI, which is not served; use --ipmi"
	for _, c := range []struct{ preset, file, want string }{
		{"", file, file + `:3: rule "deaf"` + why + "\n" + file + `:6: rule "off"` + why},
		{"ipmi-reset-when-off", "", `--preset ipmi-reset-when-off: rule "ipmi-reset-when-off"` + why},
		{"off-ignored", "", ""},
	} {
		var presets []string
		if c.preset != "" {
			presets = []string{c.preset}
		}
		got := ""
		if err := (&Options{speed: 1, presets: presets, rulesFile: c.file}).Complete(t.Context(), none); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s%s: %s\nwant %s", c.preset, c.file, got, c.want)
		}
		if err := (&Options{speed: 1, IPMI: ":0", presets: presets, rulesFile: c.file}).Complete(t.Context(), none); err != nil {
			t.Errorf("with IPMI: %v", err)
		}
	}
}

// TestABeginningEnds when it is told to, though it waits for a file.
func TestABeginningEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Options{speed: 1, rulesFile: pipe}).Complete(ctx, none); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAdminOnLocalhost: that name is loopback, too.
func TestAdminOnLocalhost(t *testing.T) {
	ready, stop := run(t, Options{Fake: 1, Admin: "localhost:0"})
	if status, body := do(t, "GET", column(ready, "(admin)", 1), ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestLog appends each request to a file.
func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bmc.log")
	for n := 1; n <= 2; n++ {
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			o := Options{Fake: 1, Ready: w, logFile: file}
			log, err := o.OpenLog()
			if err == nil {
				err = errors.Join(Run(ctx, o), log.Close())
			}
			w.CloseWithError(io.EOF)
			ended <- err
		}()
		said := bufio.NewScanner(r)
		said.Scan()
		said.Scan()
		do(t, "GET", column(said.Text(), "fake-1", 1), "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		var last fakebmc.Record
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != n || last.Host != "fake-1" || last.Actual != fakebmc.On {
			t.Errorf("%d lines, the last is %+v, %v", len(lines), last, err)
		}
	}
}

// none is a command line without flags.
func none(string) bool { return false }

// TestPlatforms: hosts take the times of the platform or of the flags, or as many times less.
func TestPlatforms(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "2s 1s 3s 10s"}, {"--platform=dell-r750", "6m25s 5s 3s 1m30s"}, {"--platform=dgx-gb300 --speed=10", "1m2.5s 500ms 300ms 12s"},
		{"--on-time=7s --platform=dell-r750", "7s 5s 3s 1m30s"}, {"--speed=0.5 --restart-time=1s", "4s 2s 6s 1s"},
		{"--platform=toaster", `--platform: no platform is called "toaster"; there are dell-r750, `}, {"--speed=0", "--speed 0: it must be more than 0"}, {"--speed=NaN", "--speed NaN: it"},
	} {
		var o Options
		flags := o.Flags()
		if err := flags.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := o.Complete(t.Context(), func(name string) (given bool) {
			flags.Visit(func(f *flag.Flag) { given = given || f.Name == name })
			return given
		}); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(o.Timing.On, o.Timing.Off, o.Timing.Shutdown, o.RestartTime)
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}
