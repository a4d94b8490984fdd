package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
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

// told returns the page's cells in the row of a client, nil if there is no such row.
func told(text, name string) []string {
	i := strings.Index(text, "\n| `"+name+"` |")
	if i < 0 {
		return nil
	}
	line, _, _ := strings.Cut(text[i+1:], "\n")
	return strings.Split(strings.Trim(line, "| "), " | ")[2:]
}

// TestPageIsWhole: the page has a row for each preset and each condition, and a column for each
// client.
func TestPageIsWhole(t *testing.T) {
	text := page(t)
	var names []string
	for _, p := range fakebmc.Presets() {
		names = append(names, p.Name)
	}
	for _, c := range conditions {
		names = append(names, c.name)
	}
	for _, name := range names {
		if n := len(told(text, name)); n != len(clients) {
			t.Errorf("docs/bmc-clients.md has a row for %s with %d beliefs, want those of %d clients: go run ./ci/clients -only %s prints it", name, n, len(clients), name)
		}
	}
	for _, c := range clients {
		if !strings.Contains(text, "| "+c.name+" "+c.version+" |") {
			t.Errorf("docs/bmc-clients.md has no column for %s %s: go run ./ci/clients prints it", c.name, c.version)
		}
	}
}

// TestBeliefs: the page's rows match the beliefs of the clients, for the presets that fool some
// clients and one that fools none.
func TestBeliefs(t *testing.T) {
	needClients(t)
	text := page(t)
	for _, only := range []string{"off-too-early", "openbmc-off-while-running", "cimc-login-without-location"} {
		var said bytes.Buffer
		if err := tables(t.Context(), &said, only, 2, 1, true); err != nil {
			t.Fatal(err)
		}
		row := strings.Split(said.String(), "\n")[2]
		if !strings.Contains(text, "\n"+row+"\n") {
			t.Errorf("docs/bmc-clients.md doesn't have this row:\n%s", row)
		}
	}
}

// TestPoorNetwork: redirections have the results on the page. Packets out of order fool no client,
// though some give up.
func TestPoorNetwork(t *testing.T) {
	needClients(t)
	if err := networkMissing(t.Context()); err != nil {
		t.Skipf("this machine can't have a network of ours: %v", err)
	}
	text := page(t)
	for _, name := range []string{"redirection", "reordering"} {
		cells, err := elsewhere(t.Context(), name, 4, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range told(text, name) {
			switch got := cells[i].Believed; {
			case got == fooled:
				t.Errorf("%s, %s: it takes a running host for off", name, clients[i].name)
			case name == "redirection" && string(got) != want:
				t.Errorf("%s, %s: %s, and the page says %s: %s", name, clients[i].name, got, want, cells[i].Why)
			}
		}
	}
}

// TestMain is also the process that has a network of its own.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-"+conditionFlag) {
		main()
		return
	}
	os.Exit(m.Run())
}

func needClients(t *testing.T) {
	t.Helper()
	for _, name := range []string{systemPython, "fence_redfish", "fence_ipmilan", "ansible-playbook", "ipmitool", "ipmipower"} {
		systemtest.RequireClient(t, name)
	}
}
