package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
)

// page is docs/bmc-clients.md.
func page(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/bmc-clients.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPageIsWhole: the page has a row for each preset, and a column for each client.
func TestPageIsWhole(t *testing.T) {
	text := page(t)
	for _, p := range fakebmc.Presets() {
		row := "\n| `" + p.Name + "` |"
		i := strings.Index(text, row)
		if i < 0 {
			t.Errorf("docs/bmc-clients.md has no row for the preset %s: go run ./ci/clients -only %s prints it", p.Name, p.Name)
			continue
		}
		line, _, _ := strings.Cut(text[i+1:], "\n")
		if n := strings.Count(line, " | ") - 1; n != len(clients) {
			t.Errorf("the row of %s has %d beliefs, want those of %d clients", p.Name, n, len(clients))
		}
	}
	for _, c := range clients {
		if !strings.Contains(text, "| "+c.name+" "+c.version+" |") {
			t.Errorf("docs/bmc-clients.md has no column for %s %s: go run ./ci/clients prints it", c.name, c.version)
		}
	}
}

// TestBeliefs: the rows of those presets that fool some clients, and of one that fools none, are what the clients believe.
func TestBeliefs(t *testing.T) {
	for _, name := range []string{systemPython, "fence_redfish", "fence_ipmilan", "ansible-playbook", "ipmitool", "ipmipower"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("FENCELAB_REQUIRE_CLIENTS") != "" {
				t.Fatalf("%v; fakebmc/clients.sh installs it", err)
			}
			t.Skipf("%v; fakebmc/clients.sh installs it", err)
		}
	}
	text := page(t)
	for _, only := range []string{"off-too-early", "openbmc-off-while-running", "cimc-login-without-location"} {
		var told bytes.Buffer
		if err := table(t.Context(), &told, only, 2, true); err != nil {
			t.Fatal(err)
		}
		row := strings.Split(told.String(), "\n")[2]
		if !strings.Contains(text, "\n"+row+"\n") {
			t.Errorf("docs/bmc-clients.md doesn't have this row:\n%s", row)
		}
	}
}
