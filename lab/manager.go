package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelab/fencelab/lab/cluster"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// standardManager is kube-controller-manager, or the external-attacher, for the stories that kill
// it.
type standardManager struct {
	program *cluster.Component
	record  *record.Record
	ctx     context.Context // of the lab
	tasks   *sync.WaitGroup
	// plays reports whether it plays the part of a controller.
	plays func(controller string) bool

	mu sync.Mutex
	// deaths counts its ends, so that a late timer can't end a later one.
	deaths int
}

// crash kills the program, and starts it again after the restartAfter of op. The event names the
// controller as the story does: one process plays the parts of several.
func (m *standardManager) crash(op *scenarios.CrashOp) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.program.Kill(); err != nil {
		return err
	}
	m.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: op.Controller, Note: "with all of " + m.program.Name()})
	m.deaths++
	death := m.deaths
	m.tasks.Go(func() {
		if !thismachine.Sleep(m.ctx, max(restartDelay, time.Duration(op.RestartAfter))) {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.deaths != death || m.ctx.Err() != nil {
			return
		}
		if err := m.program.Start(); err != nil {
			m.record.Fail(fmt.Errorf("start %s again: %w", m.program.Name(), err))
			return
		}
		m.record.Now(history.Event{Kind: history.ControllerStarted, Actor: op.Controller})
	})
	return nil
}

// stand has it stand still, or go on.
func (m *standardManager) stand(still bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if still {
		return m.program.Pause()
	}
	return m.program.Resume()
}

// What a heal does with it: see scenarios.Running.

func (m *standardManager) Plays(name string) bool { return m.plays(name) }
func (m *standardManager) Second() bool           { return false }
func (m *standardManager) End() error             { return nil } // the scenario hasn't started it
func (m *standardManager) Mend()                  {}
func (m *standardManager) Resume() error          { return m.stand(false) }

func (m *standardManager) Revive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.program.Start()
}
