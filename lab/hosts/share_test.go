package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hugelgupf/p9/linux"
	"github.com/hugelgupf/p9/p9"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// shared is storage with one host, as its kernel has it, and what the storage saw.
type shared struct {
	*sharing
	t       *testing.T
	cut     bool // changes within do
	client  *p9.Client
	machine net.Conn
	saw     []string
}

func newShared(t *testing.T) *shared {
	s := &shared{t: t}
	s.sharing = &sharing{thread: newThread(), ctx: t.Context(), boots: map[string]string{}, mounts: map[string]*mount{}, unseen: map[string]bool{}}
	s.reaches = func(string) bool { return !s.cut }
	s.Storage = &Storage{takes: scenarios.Volume{Name: "data"}, do: s.thread.do, await: s.thread.await, stir: s.look}
	s.array = model.NewArray("data", func() time.Duration { return 0 }, func(e history.Event) {
		s.saw = append(s.saw, string(e.Kind)+" "+e.Boot)
		if e.Kind != history.VolumeWritten {
			s.look()
		}
	})
	serve := s.connect("a")
	machine, port := net.Pipe()
	s.machine = machine
	go serve(port)
	var err error
	if s.client, err = p9.NewClient(machine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close(); machine.Close() })
	s.boot("1")
	return s
}

func (s *shared) boot(boot string) {
	s.notice(vms.Event{Host: "a", Kind: vms.Kind(evidence.Boot), Boot: boot})
}

// mounts it, and opens the file.
func (s *shared) mounted() (root, file p9.File) {
	s.t.Helper()
	if err := s.Attach(s.t.Context(), "a", "attacher"); err != nil {
		s.t.Fatal(err)
	}
	root, err := s.client.Attach("")
	if err == nil {
		_, file, err = root.Walk([]string{evidence.VolumeFile})
	}
	if err == nil {
		_, _, err = file.Open(p9.ReadWrite)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return root, file
}

func write(file p9.File, boot string, n int) error {
	_, err := file.WriteAt(fmt.Appendf(nil, "%s %d\n", boot, n), 0)
	return err
}

func (s *shared) expect(want ...string) {
	s.t.Helper()
	var saw []string
	s.do(func() { saw = slices.Clone(s.saw) })
	if !slices.Equal(saw, want) {
		s.t.Errorf("the storage saw %q, want %q", saw, want)
	}
}

// TestShareSeesWrites: the first write after each change of who has access is an event, of the boot
// that writes, and only what is attached is mounted.
func TestShareSeesWrites(t *testing.T) {
	s := newShared(t)
	if _, err := s.client.Attach(""); err == nil {
		t.Error("what is not attached was mounted")
	}
	root, file := s.mounted()
	for n := range 3 {
		if err := write(file, "1", n); err != nil {
			t.Fatal(err)
		}
	}
	s.expect("volume-attached 1", "volume-mounted 1", "volume-written 1")
	if err := s.Detach(t.Context(), "a", "attacher"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(file, "1", 4), file.Close(), root.Close()); err != nil {
		t.Fatal(err)
	}
	s.expect("volume-attached 1", "volume-mounted 1", "volume-written 1", "volume-detached 1", "volume-written 1", "volume-unmounted 1")
}

// TestShareKeepsOut: a host that is fenced writes nothing, and writes again when that is over; a
// write of another boot is none.
func TestShareKeepsOut(t *testing.T) {
	s := newShared(t)
	_, file := s.mounted()
	s.Fence("a")
	if err := write(file, "1", 1); !errors.Is(err, linux.EIO) {
		t.Errorf("a write of a host that is kept out: %v", err)
	}
	s.Unfence("a")
	if err := write(file, "0", 1); err == nil {
		t.Error("a write of another boot was taken")
	}
	if err := write(file, "1", 2); err != nil {
		t.Error(err)
	}
	s.expect("volume-attached 1", "volume-mounted 1", "volume-fenced 1", "volume-unfenced 1", "volume-written 1")
}

// TestShareWaits: a request of a host that can't reach the storage waits, and an unmount that is
// stuck.
func TestShareWaits(t *testing.T) {
	s := newShared(t)
	root, file := s.mounted()
	s.do(func() { s.cut = true })
	done := make(chan error, 1)
	go func() { done <- write(file, "1", 1) }()
	waits := func(what string) {
		t.Helper()
		select {
		case err := <-done:
			t.Errorf("%s didn't wait: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	goesOn := func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	waits("a write without a way")
	s.do(func() { s.cut = false })
	goesOn()
	stuck := &scenarios.StorageOp{Does: scenarios.StorageUnmount, Host: "a"}
	s.Break(stuck)
	go func() { done <- errors.Join(file.Close(), root.Close()) }()
	waits("an unmount that is stuck")
	s.Mend(stuck)
	goesOn()
	s.expect("volume-attached 1", "volume-mounted 1", "volume-written 1", "volume-unmounted 1")
}

// TestShareEndsWithTheBoot: a mount that ends with its machine or its boot was never unmounted, and
// the next boot can't write by it.
func TestShareEndsWithTheBoot(t *testing.T) {
	s := newShared(t)
	_, file := s.mounted()
	s.notice(vms.Event{Host: "a", Kind: vms.Reset})
	s.boot("2")
	if err := write(file, "2", 1); err == nil {
		t.Error("a mount outlives its boot")
	}
	if _, err := s.client.Attach(""); err != nil {
		t.Fatal(err)
	}
	s.machine.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	s.expect("volume-attached 1", "volume-mounted 1", "volume-mounted 2")
}
