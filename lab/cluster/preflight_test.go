package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPreflight(t *testing.T) {
	bin := fakeBin(t, "echo 'etcd Version: 3.6.8'; echo more", "echo 'cannot run'; exit 1")
	findings := Preflight(t.Context(), Options{Bin: bin})
	if len(findings) != 2 {
		t.Fatalf("findings: %v", findings)
	}
	if f := findings[0]; f.Name != "etcd" || f.State != "etcd Version: 3.6.8 in "+filepath.Join(bin, "etcd") || f.Remedy != "" {
		t.Errorf("a good etcd: %+v", f)
	}
	if f := findings[1]; !strings.Contains(f.State, "cannot run") || f.Remedy == "" {
		t.Errorf("a broken kube-apiserver: %+v", f)
	}
	for _, f := range Preflight(t.Context(), Options{Bin: t.TempDir()}) {
		if !strings.Contains(f.State, "no such file") || !strings.Contains(f.Remedy, "build.sh") {
			t.Errorf("in an empty directory: %+v", f)
		}
	}
}

// TestPreflightOfAttacher: only who has a CSI driver needs an external-attacher.
func TestPreflightOfAttacher(t *testing.T) {
	for _, test := range []struct {
		standard *Standard
		want     int
	}{{nil, 2}, {new(Standard), 4}, {&Standard{Driver: func(string) error { return nil }}, 5}} {
		findings := Preflight(t.Context(), Options{Bin: t.TempDir(), Standard: test.standard})
		if got := len(findings); got != test.want || got == 5 && (findings[4].Name != "csi-attacher" || findings[4].Remedy == "") {
			t.Errorf("of %+v: %v, want %d findings", test.standard, findings, test.want)
		}
	}
}

func TestDefaultBin(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(root, "a", "b")
	for _, dir := range []string{deep, filepath.Join(root, ".cache/bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(binVariable, "")
	t.Chdir(deep)
	if got, want := DefaultBin(), filepath.Join(root, ".cache/bin"); got != want {
		t.Errorf("from below: %s, want %s", got, want)
	}
	t.Setenv(binVariable, "/elsewhere")
	if got := DefaultBin(); got != "/elsewhere" {
		t.Errorf("with %s: %s", binVariable, got)
	}
}
