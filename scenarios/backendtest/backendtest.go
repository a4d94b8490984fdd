// Package backendtest is the contract of play.Backend as a test suite: what
// the run loop relies on, and what no world may do differently.
package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Run checks the backends of a world that open returns, each of which is used for one
// run: it does every operation to them that the world doesn't lack. They run side by side.
func Run(t *testing.T, world scenarios.Capabilities, open func(testing.TB) play.Backend) {
	var driven sync.Map
	t.Run("walks", func(t *testing.T) {
		walks := []struct {
			name    string
			through func(*walk)
		}{
			{"power", power},
			{"users", users},
			{"hosts", func(w *walk) { hosts(w, world) }},
			{"controllers", func(w *walk) { processes(w, world) }},
		}
		for _, walk := range walks {
			t.Run(walk.name, func(t *testing.T) {
				t.Parallel()
				walk.through(start(t, open(t), &driven, func(*scenarios.Topology) {}))
			})
		}
		if world.Lacks[scenarios.FeatureIronic] == "" {
			t.Run("ironic", func(t *testing.T) {
				t.Parallel()
				driven.Store("killIronic", true) // or the machine has none
				driven.Store("startIronic", true)
				throughIronic(start(t, open(t), &driven, func(t *scenarios.Topology) {
					t.Ironic = &scenarios.Ironic{SyncInterval: scenarios.Duration(5 * time.Second)}
				}))
			})
		}
		if world.Lacks[scenarios.FeatureVolume] == "" {
			t.Run("storage", func(t *testing.T) {
				t.Parallel()
				storage(start(t, open(t), &driven, func(t *scenarios.Topology) {
					t.Workload.Host, t.Workload.Volume = plain, &scenarios.Volume{Name: "data"}
				}))
			})
		}
	})
	t.Run("every operation", func(t *testing.T) {
		for _, name := range scenarios.Operations() {
			if _, done := driven.Load(name); !done && world.Lacks[scenarios.Feature(name)] == "" {
				t.Errorf("the %s is not asked to %s: add that to one of the walks", world.Title, name)
			}
		}
	})
	t.Run("stopped before it starts", func(t *testing.T) {
		if _, err := open(t).Stop(); err != nil {
			t.Errorf("stop a backend that was never started: %v", err)
		}
	})
	t.Run("refusal", func(t *testing.T) { refuses(t, world, open) })
}

// refuses shows that what the world lacks is refused before anything starts, and
// nothing else.
func refuses(t *testing.T, world scenarios.Capabilities, open func(testing.TB) play.Backend) {
	plan := compile(t)
	plan.Spec.Controllers[0].Replicas = 2
	plan.Deviations = []scenarios.Deviation{{Step: "reboot/api/1", Fault: scenarios.FaultCrashBefore}}
	plan.Spec.Steps = []scenarios.Step{
		{When: scenarios.Trigger{Event: string(history.EvidenceLost)}},
		{When: scenarios.Trigger{Event: string(history.ControllerError)}},
		{Do: &scenarios.Op{Pause: &scenarios.HostOp{Host: guarded}}},
		{Do: &scenarios.Op{Crash: &scenarios.CrashOp{Controller: "reboot", StaleBy: 1, LateBy: 1}}},
		{Do: &scenarios.Op{SetClock: &scenarios.ClockOp{Controller: "reboot"}}},
		{Do: &scenarios.Op{FreezeCache: &scenarios.CacheOp{Controller: "reboot", Kind: "BareMetalHost"}}},
		{Do: &scenarios.Op{ExpireWatch: &scenarios.CacheOp{Controller: "reboot", Kind: "BareMetalHost"}}},
		{Do: &scenarios.Op{PauseController: &scenarios.ControllerOp{Controller: "reboot"}}},
		{Do: &scenarios.Op{APIOutage: &scenarios.OutageOp{}}},
		{Do: &scenarios.Op{EtcdOutage: &struct{}{}}},
	}
	want := world.Refuse(plan, scenarios.Needs{})
	if len(want) == 0 {
		t.Fatalf("the %s refuses nothing of what only one world can do", world.Title)
	}
	b := open(t)
	_, err := b.Start(context.Background(), plan)
	var refusal *play.Unsupported
	if !errors.As(err, &refusal) || !slices.Equal(refusal.Reasons, want) {
		t.Errorf("start a plan that cannot be performed: %v, want an Unsupported error with\n%q", err, want)
	}
	if _, err := b.Stop(); err != nil {
		t.Errorf("stop after a refusal: %v", err)
	}
}
