package record

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/vms"
)

const (
	// beat is how often the lab looks whether it is in time itself.
	beat = time.Second
	// stall is from when on it isn't: a read of the API server takes a busy machine less. It is
	// well below the slack that claims about time have here, which many short delays may use up.
	stall = 2 * time.Second
)

// pulse records when the lab gets too little of its machine to be in time: a controller that is
// late then may be innocent. It reads from the API server once a beat, past all gates, and only
// from that server's memory, because a scenario may stop etcd: so it passes every fault of the
// scenario. A beat needs the lab and the API server, which share the machine equally with the
// controllers that the lab runs.
//
// It also records when a host starves: see starving.
type pulse struct {
	stream   *Stream
	read     func(context.Context) error
	starving *starving
}

// fromMemory is how the API server reads without etcd.
var fromMemory = &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}

// KeepPulse checks whether the lab is in time until the run ends. from reads the API past all
// gates; processors returns the processor time of the hosts that are on.
func (s *Stream) KeepPulse(ctx context.Context, from client.Reader, processors func() map[string]vms.Processors) {
	pulse{s, func(ctx context.Context) error {
		return from.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{}, fromMemory)
	}, &starving{hosts: processors}}.beat(ctx)
}

// beat looks until the run ends. Events wait for the look that is due, so that what is late is
// judged only when it is known whether the lab was.
func (p pulse) beat(ctx context.Context) {
	var since time.Duration // when the stall that goes on began
	stalls := false
	stalled := func(at time.Duration, why string) {
		if !stalls {
			since, stalls = at, true
			p.stream.Put(history.Event{At: at, Kind: history.LabStalled, Note: why})
		}
	}
	for {
		due := p.stream.Since() + beat
		release := p.stream.hold(due)
		if !thismachine.Sleep(ctx, due-p.stream.Since()) {
			release()
			return
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_ = p.read(ctx) // a refusal is an answer
		}()
		if !p.within(ctx, answered, due+stall) {
			stalled(due, "its API server took longer than "+stall.String())
		}
		starves := p.starving.now(due)
		if starves != "" {
			stalled(due, starves)
		}
		release()
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
		if stalls && starves == "" {
			stalls = false
			p.stream.Now(history.Event{Kind: history.LabRecovered, Value: (p.stream.Since() - since).Round(time.Millisecond).String()})
		}
	}
}

// within reports whether the answer came before a time. It may have passed already: this goroutine,
// too, can be late.
func (p pulse) within(ctx context.Context, answered <-chan struct{}, end time.Duration) bool {
	wait := time.NewTimer(end - p.stream.Since())
	defer wait.Stop()
	select {
	case <-answered:
		return p.stream.Since() < end
	case <-wait.C:
		return false
	case <-ctx.Done():
		return true
	}
}
