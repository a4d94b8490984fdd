package vms

import (
	"strings"
	"testing"
)

// TestMachines uses libvirt's own test driver, which simulates a hypervisor with
// one running domain called test.
func TestMachines(t *testing.T) {
	const uri = "test:///default"
	machines, disconnect, err := Machines(uri)
	if err != nil {
		t.Skipf("libvirt's test driver is not here: %v", err)
	}
	defer func() {
		if err := disconnect(); err != nil {
			t.Error(err)
		}
	}()
	if len(machines) != 1 || machines[0].Name() != "test" || machines[0].UUID() == "" {
		t.Fatalf("%d machines, want the test driver's one", len(machines))
	}
	m := machines[0]
	state := func(want State) {
		t.Helper()
		if got, err := m.State(); err != nil || got != want {
			t.Errorf("state %s, %v; want %s", got, err, want)
		}
	}
	state(StateOn)
	for _, step := range []struct {
		what string
		do   func() error
		want State
	}{
		{"on when on", m.On, StateOn}, {"force off", m.ForceOff, StateOff}, {"force off when off", m.ForceOff, StateOff},
		{"shut down when off", m.Shutdown, StateOff}, {"on", m.On, StateOn}, {"shut down", m.Shutdown, StateOff}, {"on again", m.On, StateOn},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		state(step.want)
	}
	if _, _, err := Machines(uri, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a domain that isn't there: %v", err)
	}
	if _, _, err := Machines("nonsense:///"); err == nil {
		t.Error("a libvirt that isn't there was connected to")
	}
}
