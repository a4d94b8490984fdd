package kind

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestConfiguration(t *testing.T) {
	const golden = "testdata/configuration.golden"
	var got bytes.Buffer
	for _, c := range []struct {
		name      string
		o         Options
		ours, old bool
	}{
		{"the published image", Options{}, false, false},
		{"the published image, with cgroups of version 1", Options{}, false, true},
		{"the published image, with nodes that share a directory", Options{Workers: 2, Shared: "/tmp/blobs"}, false, false},
		{"ours, for Nodes that are given up soon", Options{GracePeriod: 4 * time.Second}, true, false},
	} {
		text, err := yaml.Marshal(configuration(c.o, c.ours, c.old))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# %s\n%s\n", c.name, text)
	}
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-golden +now); after a look, rewrite it with -update:\n%s", diff)
	}
}

// TestRemoval has the removal ask a Docker that has our cluster and somebody else's, and one that
// has nothing.
func TestRemoval(t *testing.T) {
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	fake := `#!/bin/sh
echo "$*" >>` + log + `
case "$1 $2 $*" in
ps\ --all*'name=^fencelab-abcdefgh-(control-plane|worker[0-9]*)$') echo 12ab ;;
network\ ls*'name=^fencelab-abcdefgh$') echo 34cd ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	for cluster, want := range map[string]string{"fencelab-abcdefgh": "rm --force --volumes 12ab, network rm 34cd", "fencelab-hgfedcba": ""} {
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := execute(t.Context(), env, "/bin/sh", "-euc", removal, "docker", cluster); err != nil {
			t.Fatal(err)
		}
		said, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var removed []string
		for line := range strings.Lines(string(said)) {
			if strings.HasPrefix(line, "rm ") || strings.HasPrefix(line, "network rm ") {
				removed = append(removed, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(removed, ", "); got != want {
			t.Errorf("of %s it removes %q, want %q", cluster, got, want)
		}
	}
}

func TestSteps(t *testing.T) {
	var said bytes.Buffer
	l := logger{Options{Log: &said}}
	l.V(0).Infof(" • %s  ...\n", "Starting control-plane 🕹️")
	l.V(0).Infof(" ✓ %s\n", "Starting control-plane 🕹️")
	l.V(1).Info(" • details")
	if want := "lab: kind: Starting control-plane\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}

// TestSettle has kube-scheduler take the lead after kube-controller-manager: both are awaited.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "docker")
	script := `#!/bin/sh
case "$*" in
*" wait "*"lease/kube-controller-manager lease/kube-scheduler") echo 'leases "kube-scheduler" not found' >&2; exit 1 ;;
*" get "*"lease/kube-controller-manager lease/kube-scheduler") echo >>` + dir + `/asked; [ "$(wc -l <` + dir + `/asked)" -gt 2 ] || exit 1 ;;
esac
`
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{engine: &engine{command: fake}}
	if err := c.settle(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if asked, err := os.ReadFile(filepath.Join(dir, "asked")); err != nil || len(asked) != 3 {
		t.Errorf("it asked %d times: %v", len(asked), err)
	}
}
