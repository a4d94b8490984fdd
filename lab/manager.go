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

// standardManager is kube-controller-manager, as stories that kill it have it.
type standardManager struct {
	cluster *cluster.Cluster // nil if there is none
	record  *record.Record
	ctx     context.Context // of the lab
	tasks   *sync.WaitGroup
	// plays reports whether it plays the part of a controller.
	plays func(controller string) bool

	mu sync.Mutex
	// deaths counts its ends, so that a late timer can't end a later one.
	deaths int
}

// crash kills it, and starts it again in time. The history knows it by the name by which the story
// does.
func (m *standardManager) crash(op *scenarios.CrashOp) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.cluster.KillControllerManager(); err != nil {
		return err
	}
	m.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: op.Controller, Note: "with all of kube-controller-manager"})
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
		if err := m.cluster.StartControllerManager(); err != nil {
			m.record.Fail(fmt.Errorf("start kube-controller-manager again: %w", err))
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
		return m.cluster.PauseControllerManager()
	}
	return m.cluster.ResumeControllerManager()
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
	return m.cluster.StartControllerManager()
}
