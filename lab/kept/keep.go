package kept

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms/keeper"
)

// stay is the message to the process of a lab once the lab is up: from then on the lab outlives
// its client.
const stay = "stay"

// Why a lab ends: errUnwanted, its maker has gone before it was up; errDown, it was asked to;
// errLost, it can't be found any more.
var (
	errUnwanted = errors.New("the process that asked for the lab has ended")
	errDown     = errors.New("the lab was told to shut down")
	errLost     = errors.New("the lab's directory has been removed")
)

const (
	// glance is how often a lab looks whether its directory is there.
	glance = 2 * time.Second
	// goodbye limits how long a lab may take to end what it has started; the rest is killed.
	goodbye = 20 * time.Second
)

// forever is longer than any lab is kept.
const forever = time.Duration(1) << 62

// Keep is the process of a lab. It reads a Job, makes the lab, says on out what it does and how the
// lab is once that is up; and keeps the lab until it is asked to go, or until ctx ends. What it
// leaves unsaid when the lab isn't made is in the error.
func Keep(ctx context.Context, in io.Reader, out *os.File, vocabulary file.Vocabulary) error {
	signal.Ignore(syscall.SIGPIPE) // whoever listens may go at any time
	k := &keep{talker: talker{to: []*json.Encoder{json.NewEncoder(out)}}}
	err := k.run(ctx, in, out, vocabulary)
	if err != nil {
		k.send(message{Error: &failed{err.Error(), play.CodeOfUnplayed(err)}})
	}
	return err
}

// keep is a lab that is kept.
type keep struct {
	talker
	keeper  *keeper.Keeper
	end     context.CancelCauseFunc
	log     *os.File
	backend *lab.Backend

	mu     sync.Mutex
	phase  phase
	status Status
}

// phase is a stage in the life of a lab.
type phase int

const (
	making  phase = iota
	started       // it can be asked for its State, but a story could not begin yet
	standing
	going
)

func (k *keep) run(ctx context.Context, in io.Reader, out *os.File, vocabulary file.Vocabulary) (err error) {
	orders := json.NewDecoder(in)
	var job Job
	if err := orders.Decode(&job); err != nil {
		return fmt.Errorf("read which lab to create: %w", err)
	}
	plan, err := file.LoadPlan("the plan", job.Plan, vocabulary)
	if err != nil {
		return err
	}
	ctx, k.end = context.WithCancelCause(ctx)
	defer k.end(nil)
	if err := k.open(&job, plan); err != nil {
		return err
	}
	stop := k.breakSilence()
	defer func() {
		// The directory goes now, and with the end of this process what the hypervisor's keeper
		// has.
		err = errors.Join(err, k.keeper.Close())
		stop()
	}()
	if err := k.serve(); err != nil {
		return err
	}
	go k.watchDirectory(ctx)
	wanted := make(chan struct{})
	go func() {
		var order string
		if orders.Decode(&order) != nil || order != stay {
			k.end(errUnwanted)
			return
		}
		close(wanted)
	}()
	k.backend = lab.New(job.options(k))
	err = k.make(ctx, job.topology(plan))
	if err == nil {
		err = k.stand(ctx, out, wanted)
	}
	k.enter(going)
	if err == nil {
		k.say("removing the lab: " + context.Cause(ctx).Error())
	} else {
		k.say("removing what was created of the lab")
	}
	return errors.Join(err, k.stop())
}

// stop ends what the lab has started. The keepers kill what doesn't end soon, once this process
// has: somebody who ended the lab does not wait for an API server that hangs.
func (k *keep) stop() error {
	stopped := make(chan error, 1)
	go func() {
		_, err := k.backend.Stop()
		stopped <- err
	}()
	within := machine.Budget(goodbye)
	select {
	case err := <-stopped:
		return err
	case <-time.After(within):
		return fmt.Errorf("not all of the lab ended within %v: what is left is killed", within.Round(time.Second))
	}
}

// watchDirectory ends the lab when its directory is gone, by which it is found: lab status and lab
// down would know nothing of it.
func (k *keep) watchDirectory(ctx context.Context) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := os.Lstat(k.status.Dir); errors.Is(err, os.ErrNotExist) {
			k.end(errLost)
			return
		}
	}
}

// stand says that the lab is up, lets go of whoever has asked for it, and returns when it is to
// end.
func (k *keep) stand(ctx context.Context, out *os.File, wanted <-chan struct{}) error {
	k.enter(standing)
	k.send(message{Status: k.state(ctx)})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wanted:
	}
	if err := k.detach(out); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// open makes the lab's directory, in which from now on stands what it says.
func (k *keep) open(job *Job, plan *scenarios.Plan) (err error) {
	if k.keeper, err = keeper.Start(); err != nil {
		return err
	}
	dir, err := k.keeper.TempDir(prefix)
	if err == nil {
		k.log, err = os.Create(filepath.Join(dir, talk))
	}
	if err == nil {
		err = replace(os.Stderr, k.log) // for the trace of a panic
	}
	if err != nil {
		return errors.Join(err, k.keeper.Close())
	}
	k.status = Status{Name: keeper.Name(), Scenario: plan.Metadata.Name, Made: job.made(), Dir: dir, Since: time.Now()}
	k.say("the lab is named " + k.status.Name)
	return nil
}

// make makes the lab, and returns once a story could begin in it.
func (k *keep) make(ctx context.Context, plan *scenarios.Plan) error {
	if _, err := k.backend.Start(ctx, plan); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	kubeconfigText, err := k.backend.Kubeconfig()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{kubeconfig: kubeconfigText, password: []byte(k.backend.BMCPassword())} {
		if err := os.WriteFile(filepath.Join(k.status.Dir, name), text, 0o600); err != nil {
			return err
		}
	}
	k.enter(started)
	log, err := os.Create(filepath.Join(k.status.Dir, events))
	if err != nil {
		return err
	}
	k.say("waiting for " + strings.Join(k.backend.Lacks(), ", "))
	begins, over := make(chan bool), make(chan error, 1)
	go func() {
		defer log.Close()
		for {
			_, err := k.backend.Advance(forever, func(e history.Event) bool {
				fmt.Fprintln(log, e)
				if e.Kind == history.RunStarted {
					close(begins)
				}
				return false
			})
			if err != nil {
				over <- err
				return
			}
		}
	}()
	select {
	case <-begins:
		return nil
	case err := <-over:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// detach lets go of whoever has asked for the lab.
func (k *keep) detach(out *os.File) error {
	k.forget()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return replace(out, null)
}

// serve answers those who ask.
func (k *keep) serve() error {
	l, err := listen(k.status.Dir)
	if err != nil {
		return fmt.Errorf("listen in %s: %w", k.status.Dir, err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the process ends
			}
			go k.answer(conn)
		}
	}()
	return nil
}

func (k *keep) answer(conn net.Conn) {
	what, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || strings.TrimSpace(what) != askDown {
		defer conn.Close()
		if strings.TrimSpace(what) == askState {
			_ = json.NewEncoder(conn).Encode(message{Status: k.state(context.Background())}) // who asked has gone
		}
		return
	}
	// The connection ends with the process.
	k.add(json.NewEncoder(conn))
	k.end(errDown)
}

// state returns the condition of the lab.
func (k *keep) state(ctx context.Context) *Status {
	k.mu.Lock()
	s, phase := k.status, k.phase
	k.mu.Unlock()
	if phase == started || phase == standing {
		s.State = k.backend.State(ctx)
	}
	return &s
}

// enter is the beginning of a phase.
func (k *keep) enter(p phase) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase = p; p == standing {
		k.status.Doing = ""
	}
}

// say sends a text to every listener, and to the log.
func (k *keep) say(text string) {
	k.mu.Lock()
	fmt.Fprintf(k.log, "%s %s\n", time.Now().Format(time.TimeOnly), text)
	if k.phase != standing {
		k.status.Doing = text
	}
	k.mu.Unlock()
	k.send(message{Say: text})
}

// Write implements io.Writer, for what the lab says.
func (k *keep) Write(lines []byte) (int, error) {
	for line := range strings.Lines(string(lines)) {
		k.say(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "lab: "))
	}
	return len(lines), nil
}

// breakSilence lets whoever waits hear something at least every sayAfter, until it is stopped.
func (k *keep) breakSilence() (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(sayAfter / 5)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			k.mu.Lock()
			doing, phase := k.status.Doing, k.phase
			k.mu.Unlock()
			if doing == "" || k.quiet() < sayAfter {
				continue
			}
			if phase == started {
				doing = "waiting for " + strings.Join(k.backend.Lacks(), ", ")
			}
			k.send(message{Say: fmt.Sprintf("still %s (the lab is %s old)", doing, time.Since(k.status.Since).Round(time.Second))})
		}
	}()
	return func() { close(done) }
}

// talker sends messages to all who listen.
type talker struct {
	lock sync.Mutex
	to   []*json.Encoder
	last time.Time
}

func (t *talker) send(m message) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.last = time.Now()
	t.to = slices.DeleteFunc(t.to, func(to *json.Encoder) bool { return to.Encode(m) != nil }) // who doesn't listen any more
}

func (t *talker) add(to *json.Encoder) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.to = append(t.to, to)
}

func (t *talker) forget() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.to = nil
}

func (t *talker) quiet() time.Duration {
	t.lock.Lock()
	defer t.lock.Unlock()
	return time.Since(t.last)
}
