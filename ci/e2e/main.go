// Command e2e runs the suites of make e2e, and makes one JUnit file and one summary of all that
// they report.
//
// A suite NAME is the target e2e-NAME of the Makefile, which leaves what its tests say below the
// directory of results, in events/NAME.json. Each argument is a group of suites, which run side by
// side; groups run one after the other. All run, whatever comes of one. NAME=N is a suite that
// takes N slots of the machine as a whole; the others' tests take their own (package slots). A
// suite in which nothing has moved for long is ended.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/vms/keeper"
)

// cleanUp bounds the time that interrupted suites get to clean up, and lastWords the time that
// ended suites get to list what they were doing.
const cleanUp, lastWords = 2 * time.Minute, 10 * time.Second

// pause is the time between two looks at the machine, and at whether a suite still moves.
const pause = 500 * time.Millisecond

func main() {
	keeper.Main() // does not return in the process that ends the suites after us
	r := runner{to: os.Stdout}
	flag.StringVar(&r.out, "out", "out/e2e", "`directory` of the results")
	flag.StringVar(&r.tools, "tools", "ci/tools/go.mod", "`file` of the module with gotestsum")
	flag.DurationVar(&r.patience, "patience", 20*time.Minute, "how long nothing may move in a suite, on a machine that isn't slow")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // whoever interrupts twice doesn't want to wait
	code, err := r.run(ctx, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(code)
}

type runner struct {
	out, tools string
	patience   time.Duration
	mark       string // of the suites' processes

	mu   sync.Mutex
	to   io.Writer
	busy []moment
}

// moment is how slow the machine was.
type moment struct {
	at   time.Time
	slow float64
}

// run returns the exit code: 0 if all suites passed, 130 if they were interrupted.
func (r *runner) run(ctx context.Context, groups []string) (int, error) {
	began := time.Now()
	if err := os.MkdirAll(filepath.Join(r.out, "events"), 0o755); err != nil {
		return 1, fmt.Errorf("create the directory of results: %w", err)
	}
	ours, err := keeper.Start() // of the suites' processes: tests would run on if we were killed
	if err != nil {
		return 1, err
	}
	r.mark = ours.Mark()
	grouped, all, err := r.suites(groups)
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(r.to, "this machine lets us have %v, and is %.1f times as slow as that of docs/performance.md\n",
		machine.Look(machine.Root), machine.Slowness())
	for _, suites := range grouped {
		r.runGroup(ctx, suites)
	}
	code, errs := 0, []error{ours.Close()}
	for _, s := range all {
		if s.Err != nil {
			code = 1
		}
		errs = append(errs, r.collect(s))
	}
	junit := filepath.Join(r.out, "junit.xml")
	errs = append(errs, r.junit(all, junit))
	var summary bytes.Buffer
	summarize(&summary, all, r.during, time.Since(began), junit)
	fmt.Fprintf(r.to, "\n%s", &summary)
	errs = append(errs, os.WriteFile(filepath.Join(r.out, "summary.txt"), summary.Bytes(), 0o644))
	err = errors.Join(errs...)
	switch {
	case ctx.Err() != nil:
		code = 130
	case err != nil:
		code = 1
	}
	return code, err
}

// suites returns the suites of each group, and all of them.
func (r *runner) suites(groups []string) (grouped [][]*suite, all []*suite, err error) {
	for _, group := range groups {
		var suites []*suite
		for _, word := range strings.Fields(group) {
			name, slots, costs := strings.Cut(word, "=")
			s := &suite{Name: name, Log: filepath.Join(r.out, name+".log")}
			if costs {
				if s.Slots, err = strconv.Atoi(slots); err != nil {
					return nil, nil, fmt.Errorf("%s: its slots: %w", word, err)
				}
			}
			suites = append(suites, s)
		}
		grouped, all = append(grouped, suites), append(all, suites...)
	}
	return grouped, all, nil
}

// runGroup runs suites side by side, and notes all along how slow the machine is.
func (r *runner) runGroup(ctx context.Context, suites []*suite) {
	var running sync.WaitGroup
	for _, s := range suites {
		running.Go(func() {
			s.Err = r.enter(ctx, s)
			s.Ended = time.Now()
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		running.Wait()
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(pause):
			r.look()
		}
	}
}

// enter runs a suite once there is room.
func (r *runner) enter(ctx context.Context, s *suite) error {
	if s.Slots > 0 {
		turn, err := slots.Machine().Take(ctx, "the suite "+s.Name, s.Slots, nil)
		if err != nil && ctx.Err() == nil {
			return err
		}
		defer turn.Release()
		turn.Begun()
	}
	s.Began = time.Now()
	if ctx.Err() != nil {
		return errors.New("interrupted before it began")
	}
	return r.runSuite(ctx, s)
}

// look notes how slow the machine is.
func (r *runner) look() {
	slow := machine.Slowness()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = append(r.busy, moment{time.Now(), slow})
}

// during is how slow the machine was in a time, on average.
func (r *runner) during(from, to time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum, n := 0.0, 0
	for _, m := range r.busy {
		if !m.at.Before(from) && !m.at.After(to) {
			sum, n = sum+m.slow, n+1
		}
	}
	if n == 0 {
		return machine.Slowness()
	}
	return sum / float64(n)
}

func (r *runner) events(s *suite) string { return filepath.Join(r.out, "events", s.Name+".json") }

func (r *runner) say(name, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.to, "%-8s| %s\n", name, line)
}

// runSuite runs a suite in a session of its own: an interrupt has to reach its tests, which may be
// far below make, and make e2e may have been asked to end by a signal that make doesn't pass on as
// one.
func (r *runner) runSuite(ctx context.Context, s *suite) error {
	log, err := os.Create(s.Log)
	if err != nil {
		return fmt.Errorf("write down what it says: %w", err)
	}
	defer log.Close()
	said := &lines{say: func(line string) { r.say(s.Name, line) }}
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "e2e-"+s.Name)
	cmd.Env = append(os.Environ(), r.mark)
	cmd.Stdout = io.MultiWriter(log, said)
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = cleanUp
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	stuck := r.watch(s, cmd.Process.Pid, ended)
	err = cmd.Wait()
	close(ended)
	said.flush()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return errors.Join(<-stuck, err)
}

// watch ends a suite in which nothing moves any more: neither has a test begun or ended, nor was
// anything said. Go's tests print then what they are at.
func (r *runner) watch(s *suite, session int, ended <-chan struct{}) <-chan error {
	stuck := make(chan error, 1)
	patience := machine.NewPatience(r.patience)
	go func() {
		defer close(stuck)
		for {
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
			var moved [2]int64
			for i, file := range []string{r.events(s), s.Log} {
				if info, err := os.Stat(file); err == nil { // it may not be there yet
					moved[i] = info.Size()
				}
			}
			if !patience.Over(moved) {
				continue
			}
			stuck <- fmt.Errorf("nothing has moved for %v", r.patience)
			_ = syscall.Kill(-session, syscall.SIGQUIT) // it may just have ended
			select {
			case <-ended:
			case <-time.After(lastWords):
				_ = syscall.Kill(-session, syscall.SIGKILL)
			}
			return
		}
	}()
	return stuck
}

// lines passes on whole lines.
type lines struct {
	say  func(string)
	rest []byte
}

func (l *lines) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		l.say(string(line))
		l.rest = rest
	}
}

func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.say(string(l.rest))
	}
}

// collect reads what the suite's tests said. If it failed and no test did, such as when it couldn't
// be built, the suite itself is a test that failed, with the end of its output.
func (r *runner) collect(s *suite) error {
	data, err := os.ReadFile(r.events(s))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the results of %s: %w", s.Name, err)
	}
	s.Tests = parse(data)
	if s.Err == nil || len(s.bad()) > 0 {
		return nil
	}
	log, _ := os.ReadFile(s.Log) // there is none of a suite that did not begin
	end := strings.SplitAfter(string(log), "\n")
	buffer := bytes.NewBuffer(append(data, '\n')) // the last line may have been cut short
	to := json.NewEncoder(buffer)
	for _, e := range []event{
		{Action: "run"},
		{Action: "output", Output: s.Err.Error() + "\n" + strings.Join(end[max(0, len(end)-50):], "")},
		{Action: "fail", Elapsed: s.took().Seconds()},
	} {
		e.Time, e.Package, e.Test = s.Began, s.Name, "make e2e-"+s.Name
		if err := to.Encode(e); err != nil {
			return fmt.Errorf("record the end of %s: %w", s.Name, err)
		}
	}
	s.Tests = parse(buffer.Bytes())
	if err := os.WriteFile(r.events(s), buffer.Bytes(), 0o644); err != nil {
		return fmt.Errorf("record the end of %s: %w", s.Name, err)
	}
	return nil
}

// junit has gotestsum write all events as JUnit. Its exit code says no more than that a test
// failed.
func (r *runner) junit(suites []*suite, path string) error {
	var events bytes.Buffer
	for _, s := range suites {
		data, _ := os.ReadFile(r.events(s)) // a suite without tests that passed has none
		events.Write(append(data, '\n'))
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	cmd := exec.Command("go", "tool", "-modfile="+r.tools, "gotestsum", "--raw-command", "--ignore-non-json-output-lines", "--format", "dots",
		"--junitfile", path, "--junitfile-project-name", "make e2e", "--junitfile-testsuite-name", "relative", "--", "cat")
	cmd.Stdin = &events
	output, err := cmd.CombinedOutput()
	if _, missing := os.Stat(path); missing != nil {
		return fmt.Errorf("write %s: %w\n%s", path, err, output)
	}
	return nil
}
