package lab

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/scenarios/history"
)

// brokenWire is a reboot.Power whose commands arrive at a BMC that refuses them.
type brokenWire struct {
	reboot.Power
	b *Backend
}

func (w brokenWire) Off(_ context.Context, host *api.BareMetalHost) error {
	w.b.received(host.Name, "127.0.0.1:1", fakebmc.ResetForceOff)
	w.b.received("worker-2", fakebmc.ClientRestore, fakebmc.ResetOn)
	w.b.received("worker-2", "127.0.0.1:1", fakebmc.ResetForceRestart)
	w.b.requested(host.Name, fakebmc.Record{
		Request: fakebmc.Request{Client: "127.0.0.1:1", ResetType: fakebmc.ResetForceOff}, Executed: fakebmc.Never, Rules: []string{"fault"},
	})
	w.b.requested(host.Name, fakebmc.Record{Request: fakebmc.Request{Client: "127.0.0.1:1"}, Rules: []string{"read"}})
	w.b.requested(host.Name, fakebmc.Record{Request: fakebmc.Request{Client: fakebmc.ClientBMC, ResetType: fakebmc.ResetForceOff}, Rules: []string{"own"}})
	w.b.requested("worker-2", fakebmc.Record{Request: fakebmc.Request{Client: "127.0.0.1:1", ResetType: fakebmc.ResetForceOff}, Rules: []string{"other"}})
	return nil
}

func TestEventsOfABMCNameTheClient(t *testing.T) {
	b := &Backend{stream: newStream(func() time.Duration { return 0 })}
	gate := &powerGate{&process{b: b, name: "reboot"}, &life{}, brokenWire{b: b}}
	host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	if err := gate.Off(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	b.requested(host.Name, fakebmc.Record{Request: fakebmc.Request{Client: "127.0.0.1:1", ResetType: fakebmc.ResetForceOff}, Rules: []string{"late"}})
	want := map[string]string{"ForceOff": "reboot", "On": "restore", "ForceRestart": "", "fault": "reboot", "read": "reboot", "own": "bmc", "other": "", "late": ""}
	for _, e := range b.stream.pending {
		if by, known := want[e.Value]; e.Kind.Layer() == history.BMC && (!known || e.Actor != by) {
			t.Errorf("%v is by %q, want %q", e, e.Actor, by)
		}
	}
	if n := len(b.stream.pending); n != 9 {
		t.Errorf("%d events, want 9: %v", n, b.stream.pending)
	}
}

// TestRequestsUnderWayAreKept ends a run while a BMC holds a request back.
func TestRequestsUnderWayAreKept(t *testing.T) {
	server, err := redfish.NewServer(redfish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	clock := wall.Clock()
	b := &Backend{server: server, stream: newStream(clock.Now), names: []string{"worker-1"}}
	b.ctx, b.cancel = context.WithCancel(t.Context())
	bmc := fakebmc.New("worker-1", memory.New(clock, memory.Timing{}, true), clock,
		fakebmc.OnRequest(func(r fakebmc.Record) { b.requested("worker-1", r) }))
	b.bmcs = map[string]*fakebmc.BMC{"worker-1": bmc}
	if err := bmc.AddRule(fakebmc.Rule{Name: "held-back", Effect: fakebmc.Effect{Delay: fakebmc.Duration(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	url, err := server.Listen("127.0.0.1:0", bmc)
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		if response, err := http.Get(url + "/redfish/v1/Systems/worker-1"); err == nil {
			response.Body.Close()
			t.Error("the request was answered")
		}
	}()
	for end := time.Now().Add(30 * time.Second); len(bmc.Pending()) == 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request hasn't reached the BMC")
		}
	}
	artifacts, err := b.Stop()
	if err != nil {
		t.Fatal(err)
	}
	<-cut
	for _, a := range artifacts {
		if a.Name == "bmc.jsonl" && bytes.Contains(a.Data, []byte(`"rules":["held-back"]`)) {
			return
		}
	}
	t.Errorf("no trace of the request in %v", artifacts)
}
