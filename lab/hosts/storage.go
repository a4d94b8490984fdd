package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
)

// Storage has the volume of a lab's workload, and records who has access to it. It is out of band:
// the hosts' network doesn't lead to it, and a story cuts that way by itself.
type Storage struct {
	array *model.Array
	takes scenarios.Volume
	// do does one thing at a time, and stirs those that await something.
	do    func(func())
	await func(ctx context.Context, is func() (bool, error)) error
	// troubles has its failures in force. Like the array it changes within do.
	troubles []scenarios.StorageOp
	// stir lets whatever writes do so once more.
	stir func()
}

// Volume is the volume's name.
func (s *Storage) Volume() string { return s.takes.Name }

// Break makes it fail, Mend ends that, and Heal ends all but some.
func (s *Storage) Break(op *scenarios.StorageOp) {
	s.do(func() { s.troubles = append(s.troubles, *op) })
}

func (s *Storage) Mend(op *scenarios.StorageOp) {
	s.forget(func(t scenarios.StorageOp) bool { return t.Does == op.Does && t.Host == op.Host })
}

func (s *Storage) Heal(but []scenarios.StorageOp) {
	s.forget(func(t scenarios.StorageOp) bool { return !slices.Contains(but, t) })
}

func (s *Storage) forget(which func(scenarios.StorageOp) bool) {
	s.do(func() {
		s.troubles = slices.DeleteFunc(s.troubles, which)
		s.stir()
	})
}

// Fence has it take nothing more from a host, Unfence lets the host in again.
func (s *Storage) Fence(host string) { s.do(func() { s.array.Fence(host, string(history.Engine)) }) }
func (s *Storage) Unfence(host string) {
	s.do(func() { s.array.Unfence(host, string(history.Engine)) })
}

// Attach gives the volume to a host, and Detach takes it away, in the name of a client. They return
// when that is done, or won't be; storage that hangs answers when it is mended.
func (s *Storage) Attach(ctx context.Context, host, by string) error {
	return s.serve(ctx, scenarios.StorageAttach, host, time.Duration(s.takes.Attach), func() { s.array.Attach(host, by) })
}

func (s *Storage) Detach(ctx context.Context, host, by string) error {
	return s.serve(ctx, scenarios.StorageDetach, host, time.Duration(s.takes.Detach), func() { s.array.Detach(host, by) })
}

// KeepOut takes nothing more from a host, and LetIn does again, in the name of a client.
func (s *Storage) KeepOut(ctx context.Context, host, by string) error {
	return s.serve(ctx, scenarios.StorageFence, host, 0, func() { s.array.Fence(host, by) })
}

func (s *Storage) LetIn(ctx context.Context, host, by string) error {
	return s.serve(ctx, scenarios.StorageUnfence, host, 0, func() { s.array.Unfence(host, by) })
}

func (s *Storage) serve(ctx context.Context, does scenarios.StorageDeed, host string, takes time.Duration, do func()) error {
	err := s.await(ctx, func() (bool, error) {
		switch t := s.trouble(does, host); {
		case t != nil && t.Refuses:
			return false, fmt.Errorf("%s %s: the storage refused", does, host)
		case t != nil && ctx.Err() != nil:
			return false, context.Cause(ctx)
		default:
			return t == nil, nil
		}
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s: the storage did not answer", does, host)
	case err != nil:
		return err
	}
	if takes > 0 {
		time.Sleep(takes) // whether or not its client still waits
	}
	s.do(do)
	return nil
}

// trouble returns the failure of a deed for a host, nil if it succeeds. It is called within do.
func (s *Storage) trouble(does scenarios.StorageDeed, host string) *scenarios.StorageOp {
	i := slices.IndexFunc(s.troubles, func(t scenarios.StorageOp) bool { return t.Does == does && (t.Host == "" || t.Host == host) })
	if i < 0 {
		return nil
	}
	return &s.troubles[i]
}

var (
	errMountStuck   = errors.New("mount: it is stuck")
	errUnmountStuck = errors.New("unmount: it is stuck")
	errOutOfReach   = errors.New("mount: the storage is out of reach")
)

// mount mounts the volume in the boot of a host that runs, and unmount ends that. They are called
// within do. reaches says whether the way from the host is open.
func (s *Storage) mount(host string, reaches bool) error {
	switch {
	case s.trouble(scenarios.StorageMount, host) != nil:
		return errMountStuck
	case !reaches:
		return errOutOfReach
	}
	return s.array.Mount(host)
}

func (s *Storage) unmount(host string) error {
	if s.trouble(scenarios.StorageUnmount, host) != nil {
		return errUnmountStuck
	}
	s.array.Unmount(host)
	return nil
}
