package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOption(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"/b", []string{"runc", "--root", "/r", "create", "--bundle", "/b", "id"}},
		{"/b", []string{"runc", "create", "--bundle=/b", "id"}},
		{"/b", []string{"runc", "run", "-b", "/b", "id"}},
		{"", []string{"runc", "exec", "--process", "/p", "id"}},
		{"", []string{"runc", "create", "--bundle"}},
	} {
		if got := option(c.args, "--bundle", "-b"); got != c.want {
			t.Errorf("bundle of %q is %q, want %q", c.args, got, c.want)
		}
	}
}

// TestConfine is about what containerd asks of runc, for a container and for a process in it.
func TestConfine(t *testing.T) {
	const privileged = `{"ociVersion": "1.0.2", "process": {"args": ["init"], "oomScoreAdj": -997, "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1073741816, "soft": 1}],
		"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]}}, "linux": {"resources": {"memory": {"limit": 9007199254740993}}}}`
	all := means{map[string]bool{"CAP_CHOWN": true, capResource: true}, -1000}
	without := means{map[string]bool{"CAP_CHOWN": true}, 0}
	for _, c := range []struct {
		name string
		have means
		want string
	}{
		{"all is there", all, privileged},
		{"a capability is missing", without, `{"ociVersion": "1.0.2", "process": {"args": ["init"], "oomScoreAdj": 0,
			"capabilities": {"bounding": ["CAP_CHOWN"], "effective": []}}, "linux": {"resources": {"memory": {"limit": 9007199254740993}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(privileged), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := edit(file, func(spec map[string]any) { confine(spec["process"], c.have) }); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(canonical(t, c.want), canonical(t, string(text))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// canonical keeps the digits of numbers.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(raw["process"], &plain); err != nil {
		t.Fatal(err)
	}
	process, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	var linux struct {
		Resources struct{ Memory struct{ Limit json.Number } }
	}
	if err := json.Unmarshal(raw["linux"], &linux); err != nil {
		t.Fatal(err)
	}
	return string(process) + " " + linux.Resources.Memory.Limit.String()
}

// TestPossible holds what the process has against what the kernel says of it.
func TestPossible(t *testing.T) {
	m, err := possible()
	if err != nil {
		t.Fatal(err)
	}
	if len(capabilities) != 41 {
		t.Errorf("%d capabilities have names; Linux has 41", len(capabilities))
	}
	if m.capabilities[capResource] != (m.oomScore == -1000) {
		t.Errorf("with %s %v the lowest OOM score is %d", capResource, m.capabilities[capResource], m.oomScore)
	}
}
