// Package backendtest is the contract of scenarios.Backend as a test suite: what
// the run loop relies on, and what no world may do differently.
package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Run checks the backends that open returns, each of which is used for one run.
// The plan has a host that is up and healthy from the start of the story, on
// which an annotation can be set; a world that can refuse anything refuses
// unsupported, which may be nil.
func Run(t *testing.T, open func(testing.TB) scenarios.Backend, plan, unsupported *scenarios.Plan) {
	t.Run("a run", func(t *testing.T) { run(t, open(t), plan) })
	t.Run("stopped before it starts", func(t *testing.T) {
		if _, err := open(t).Stop(); err != nil {
			t.Errorf("stop a backend that was never started: %v", err)
		}
	})
	t.Run("refusal", func(t *testing.T) {
		if unsupported == nil {
			t.Skip("this world performs everything that a plan can ask for")
		}
		b := open(t)
		_, err := b.Start(context.Background(), unsupported)
		var refusal *scenarios.Unsupported
		if !errors.As(err, &refusal) || len(refusal.Reasons) == 0 {
			t.Errorf("start a plan that cannot be performed: %v, want an Unsupported error with its reasons", err)
		}
		if _, err := b.Stop(); err != nil {
			t.Errorf("stop after a refusal: %v", err)
		}
	})
}

// run plays a plan by hand.
func run(t *testing.T, b scenarios.Backend, plan *scenarios.Plan) {
	if _, err := b.Start(context.Background(), plan); err != nil {
		_, stopErr := b.Stop()
		t.Fatal(errors.Join(err, stopErr))
	}
	stopped := false
	defer func() {
		if !stopped {
			_, _ = b.Stop()
		}
	}()
	var seen []history.Event
	advance := func(now, until time.Duration, stop func(history.Event) bool) time.Duration {
		t.Helper()
		var last *history.Event
		halted := false
		at, err := b.Advance(until, func(e history.Event) bool {
			if halted {
				t.Errorf("%s was handed over after the callback had stopped the world", e)
			}
			if len(seen) > 0 && e.At < seen[len(seen)-1].At {
				t.Errorf("%s comes after an event of %s", e, seen[len(seen)-1].At)
			}
			if e.At > until {
				t.Errorf("%s was handed over by an advance until %s", e, until)
			}
			if e.Kind.Layer() == "" {
				t.Errorf("%s is of no known kind", e)
			}
			if field := e.Lacks(); field != "" {
				t.Errorf("%s has no %s", e, field)
			}
			seen = append(seen, e)
			last, halted = &e, stop(e)
			return halted
		})
		if err != nil {
			t.Fatalf("advance until %s: %v", until, err)
		}
		switch {
		case halted && at != last.At:
			t.Errorf("stopped at %s by an event of %s", at, last.At)
		case !halted && at != until:
			t.Errorf("advanced to %s instead of %s, though nobody stopped it", at, until)
		case at < now:
			t.Errorf("advanced backwards, from %s to %s", now, at)
		}
		return at
	}
	is := func(kind history.Kind) func(history.Event) bool {
		return func(e history.Event) bool { return e.Kind == kind }
	}
	count := func(kind history.Kind) (n int) {
		for _, e := range seen {
			if e.Kind == kind {
				n++
			}
		}
		return n
	}

	now := advance(0, 5*time.Minute, is(history.RunStarted))
	if count(history.RunStarted) != 1 {
		t.Fatalf("the topology was not up after %s", now)
	}
	hosts := plan.Spec.Topology.Hosts
	if ready := count(history.NodeReady); ready < len(hosts) {
		t.Errorf("%d of %d Nodes were Ready when the story began", ready, len(hosts))
	}
	if complete := count(history.BootComplete); complete < len(hosts) {
		t.Errorf("%d of %d boots were complete when the story began", complete, len(hosts))
	}

	now = advance(now, now+time.Second, func(history.Event) bool { return false })
	name := hosts[0].Name
	// A client's key on a host holds it off for as long as it stays.
	annotation := &scenarios.AnnotateOp{Object: "BareMetalHost/" + name, Key: "reboot.metal3.io/backendtest", Value: `{"mode":"hard"}`}
	if err := b.Apply(scenarios.Op{Annotate: annotation}); err != nil {
		t.Fatalf("annotate: %v", err)
	}
	before := len(seen)
	now = advance(now, now+time.Minute, is(history.AnnotationSet))
	if e := seen[len(seen)-1]; e.Kind != history.AnnotationSet || e.Host != name || e.Key != annotation.Key || e.Value != annotation.Value {
		t.Errorf("the annotation was set, but the last of %d events is %s", len(seen)-before, e)
	}
	by := func(kind history.Kind, actor string) {
		t.Helper()
		now = advance(now, now+time.Minute, is(kind))
		if e := seen[len(seen)-1]; e.Kind != kind || e.Host != name || e.Actor != actor {
			t.Errorf("the last event is %s, want %s of %s by %s", e, kind, name, actor)
		}
	}
	by(history.BootEnded, "reboot")
	by(history.PowerOff, "reboot")
	if err := b.Apply(scenarios.Op{RemoveAnnotation: annotation}); err != nil {
		t.Fatalf("remove the annotation: %v", err)
	}
	if err := b.Apply(scenarios.Op{Heal: &struct{}{}}); err != nil {
		t.Errorf("heal where nothing is broken: %v", err)
	}
	completed := count(history.BootComplete)
	now = advance(now, now+2*time.Minute, is(history.BootComplete))
	if count(history.BootComplete) != completed+1 {
		t.Errorf("the host did not boot again by %s", now)
	}
	// What users do to the objects.
	do := func(op scenarios.Op) {
		t.Helper()
		if err := b.Apply(op); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	comes := func(kind history.Kind, value string) {
		t.Helper()
		now = advance(now, now+time.Minute, is(kind))
		if e := seen[len(seen)-1]; e.Kind != kind || e.Host != name || e.Value != value {
			t.Errorf("the last event is %s, want %s of %s with %q", e, kind, name, value)
		}
	}
	patch := func(object, merge string) {
		t.Helper()
		do(scenarios.Op{Patch: &scenarios.PatchOp{Object: object, Merge: json.RawMessage(merge)}})
	}
	node := &scenarios.ObjectOp{Object: "Node/" + hosts[0].Node()}
	now = advance(now, now+time.Minute, is(history.NodeReady))
	patch(node.Object, `{"spec":{"unschedulable":true}}`)
	comes(history.NodeCordoned, "")
	patch(node.Object, `{"spec":{"unschedulable":null}}`)
	comes(history.NodeUncordoned, "")
	patch("BareMetalHost/"+name, `{"metadata":{"labels":{"backendtest":"x"}},"status":{"provisioning":{"state":"preparing"}}}`)
	comes(history.ProvisioningState, "preparing")
	patch("BareMetalHost/"+name, `{"metadata":{"labels":{"backendtest":null}},"status":{"provisioning":{"state":"externally provisioned"}}}`)
	comes(history.ProvisioningState, "externally provisioned")
	machine := &scenarios.ObjectOp{Object: "Machine/" + name}
	for range 2 { // the second time there is nothing to do
		do(scenarios.Op{Delete: machine})
	}
	for range 2 {
		do(scenarios.Op{Create: machine})
	}
	patch(machine.Object, `{"status":{"nodeRef":{"name":"another"}}}`)
	do(scenarios.Op{Delete: node})
	comes(history.NodeDeleted, "")
	var ineffective *scenarios.Ineffective
	if err := b.Apply(scenarios.Op{Patch: &scenarios.PatchOp{Object: node.Object, Merge: json.RawMessage(`{"spec":{"unschedulable":true}}`)}}); !errors.As(err, &ineffective) {
		t.Errorf("patch a Node that isn't there: %v, want an Ineffective error", err)
	}
	// What the scenario itself does to the power is nobody else's doing.
	if err := b.Apply(scenarios.Op{PowerLoss: &scenarios.HostOp{Host: name}}); err != nil {
		t.Fatalf("take the power away: %v", err)
	}
	by(history.BootEnded, string(history.Engine))
	by(history.PowerOff, string(history.Engine))
	if err := b.Apply(scenarios.Op{PowerUp: &scenarios.HostOp{Host: name}}); err != nil {
		t.Fatalf("switch the host on: %v", err)
	}
	by(history.PowerOn, string(history.Engine))
	if err := b.Apply(scenarios.Op{Cut: &scenarios.HostOp{Host: "nobody"}}); err == nil {
		t.Error("an operation on a host that doesn't exist was accepted")
	}
	for range 2 {
		if _, err := b.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		stopped = true
	}
}
