package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/fencelab/fencelab/lab/machine"
)

// Shelf hands control planes on within a program, since coming up is most of what one costs: the
// next of the same kind takes one that was stopped, emptied and checked. There it stands still
// until then, and costs memory alone. The program that makes a Shelf closes it; the keepers of what
// is on it remove that if the program is killed.
//
// What could come of one life in the next is ruled out so:
//
//   - Objects: every key of the store is one of those that the control plane had when it was new,
//     in the same version, or is deleted. A control plane of which anything else was changed or
//     deleted, or that holds what the API server may remember elsewhere (definitions, webhooks,
//     Services, Namespaces, ...), ends instead.
//   - Whoever writes still: each life has an authority of its own for certificates, and the API
//     server believes no other, also not on connections that are open. Tokens are kubelets' and
//     stay; their machines are gone before a lab stops its control plane.
//   - Old versions: nothing is compacted, so that a lab finds every version that it has seen,
//     however old its control plane.
//   - Whatever else a server may have: one that was made to stand still, or ended, is not handed
//     on.
//
// What remains different is that versions begin with a higher number.
type Shelf struct {
	// Spare is how much memory, in bytes, has to be left to others for a control plane to be kept.
	// The zero value means SpareMemory; who plays one life after the other, and nothing else, needs
	// none: NoSpare.
	Spare int64

	mu     sync.Mutex
	closed bool
	idle   []*Cluster
}

// mostIdle bounds what a shelf holds, which takes 300 to 450 MB each.
const mostIdle = 2

// What a Shelf's Spare can be: each process of a suite has a shelf of its own, and what is on it
// counts for no slot of the gate.
const (
	SpareMemory = 4 << 30
	NoSpare     = -1
)

// kindOf returns a digest of everything that two control planes must share for one to replace the
// other, besides the tokens of their Nodes.
func kindOf(o *Options) (kind [sha256.Size]byte, err error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00", o.Bin)
	for _, files := range o.Manifests {
		err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, name)
			fmt.Fprintf(sum, "%s\x00%d\x00%s", name, len(text), text)
			return err
		})
		if err != nil {
			return kind, fmt.Errorf("read manifests: %w", err)
		}
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}

// Launch is as the function of that name, with a control plane that was handed on if one fits. A
// nil Shelf, and one that is asked for standard controllers, starts a new one, which is not handed
// on.
func (s *Shelf) Launch(ctx context.Context, o Options) (*Cluster, error) {
	if s == nil || o.Standard != nil {
		return Launch(ctx, o)
	}
	if o.Bin == "" {
		o.Bin = DefaultBin()
	}
	kind, err := kindOf(&o)
	if err != nil {
		return nil, err
	}
	for c := s.take(kind, o.Nodes); c != nil; c = s.take(kind, o.Nodes) {
		err := c.renew(ctx)
		if err == nil {
			return c, nil
		}
		o.logf("a control plane that was used before is not handed on: %v", errors.Join(err, c.end()))
	}
	o.lasting = true
	c, err := Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	c.shelf, c.kind = s, kind
	if c.original, err = c.settled(ctx); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// take returns one of a kind that knows the Nodes, or nil.
func (s *Shelf) take(kind [sha256.Size]byte, nodes []string) *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.idle {
		if c.kind == kind && c.knows(nodes) {
			s.idle = append(s.idle[:i:i], s.idle[i+1:]...)
			return c
		}
	}
	return nil
}

func (c *Cluster) knows(nodes []string) bool {
	for _, node := range nodes {
		if c.nodeTokens[node] == "" {
			return false
		}
	}
	return true
}

// keep puts a control plane that is stopped on the shelf, where it stands still, and reports
// whether it did: one that isn't what it was has to end, as one does for which there is no room.
func (s *Shelf) keep(c *Cluster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if machine.Available(machine.Root) < cmp.Or(s.Spare, SpareMemory) {
		return false
	}
	// What was changed by stopping it would show in the next life.
	if s.closed || len(s.idle) == mostIdle || c.disturbed || c.original == nil || c.pause() != nil {
		return false
	}
	s.idle = append(s.idle, &Cluster{
		identities: c.identities, options: c.options, keeper: c.keeper, port: c.port, dir: c.dir, bootstrap: c.bootstrap, through: c.through,
		etcd: c.etcd, apiServer: c.apiServer, shelf: s, kind: c.kind, original: c.original,
	})
	return true
}

// Close ends what is on the shelf, and has what is still in use end when it is stopped.
func (s *Shelf) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, c := range s.idle {
		errs = append(errs, c.resume(), c.end())
	}
	s.idle = nil
	return errors.Join(errs...)
}

// Holds are the processes and the directories of what is on the shelf.
func (s *Shelf) Holds() (processes []int, directories []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		processes, directories = append(processes, c.etcd.Pid(), c.apiServer.Pid()), append(directories, c.dir)
	}
	return processes, directories
}

// pause has both processes stand still, the one first that would miss the other.
func (c *Cluster) pause() error { return errors.Join(c.apiServer.Pause(), c.etcd.Pause()) }

// resume undoes pause.
func (c *Cluster) resume() error { return errors.Join(c.etcd.Resume(), c.apiServer.Resume()) }

// renew makes what stood on the shelf a control plane that is as good as new: it has a new
// authority, and is empty.
func (c *Cluster) renew(ctx context.Context) (err error) {
	if err := c.resume(); err != nil {
		return err
	}
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	c.admin = c.ConfigFor(administrator, "system:masters")
	// The API server follows the files of its certificates and authority, and answers this
	// administrator once it has them all.
	if err := c.writeCredentials(c.dir); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	return c.empty(ctx)
}
