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

// pause is the time between two looks at whether a suite still moves.
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

	mu sync.Mutex
	to io.Writer
}

// suite is a target of the Makefile, and the result of running it.
type suite struct {
	name         string
	slots        int // that it takes as a whole
	began, ended time.Time
	err          error
}

func (s *suite) took() time.Duration { return s.ended.Sub(s.began) }

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
		if s.err != nil {
			code = 1
		}
		errs = append(errs, r.complete(s))
	}
	err = errors.Join(append(errs, r.report(all, time.Since(began)))...)
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
			s := &suite{name: name}
			if costs {
				if s.slots, err = strconv.Atoi(slots); err != nil {
					return nil, nil, fmt.Errorf("%s: its slots: %w", word, err)
				}
			}
			suites = append(suites, s)
		}
		grouped, all = append(grouped, suites), append(all, suites...)
	}
	return grouped, all, nil
}

// runGroup runs suites side by side.
func (r *runner) runGroup(ctx context.Context, suites []*suite) {
	var running sync.WaitGroup
	for _, s := range suites {
		running.Go(func() {
			s.err = r.enter(ctx, s)
			s.ended = time.Now()
		})
	}
	running.Wait()
}

// enter runs a suite once there is room.
func (r *runner) enter(ctx context.Context, s *suite) error {
	if s.slots > 0 {
		turn, err := slots.Machine().Take(ctx, "the suite "+s.name, s.slots, nil)
		if err != nil && ctx.Err() == nil {
			return err
		}
		defer turn.Release()
		turn.Begun()
	}
	s.began = time.Now()
	if ctx.Err() != nil {
		return errors.New("interrupted before it began")
	}
	return r.runSuite(ctx, s)
}

func (r *runner) events(s *suite) string { return filepath.Join(r.out, "events", s.name+".json") }

func (r *runner) log(s *suite) string { return filepath.Join(r.out, s.name+".log") }

func (r *runner) say(name, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.to, "%-8s| %s\n", name, line)
}

// runSuite runs a suite in a session of its own: an interrupt has to reach its tests, which may be
// far below make, and make e2e may have been asked to end by a signal that make doesn't pass on as
// one.
func (r *runner) runSuite(ctx context.Context, s *suite) error {
	log, err := os.Create(r.log(s))
	if err != nil {
		return fmt.Errorf("write down what it says: %w", err)
	}
	defer log.Close()
	said := &lines{say: func(line string) { r.say(s.name, line) }}
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "e2e-"+s.name)
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
			for i, file := range []string{r.events(s), r.log(s)} {
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

// complete gives a suite that failed without a test that did, such as one that couldn't be built, a
// test that stands for all of it and quotes the end of its output.
func (r *runner) complete(s *suite) error {
	events, err := os.OpenFile(r.events(s), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("read the results of %s: %w", s.name, err)
	}
	defer events.Close()
	data, err := io.ReadAll(events)
	if err != nil {
		return fmt.Errorf("read the results of %s: %w", s.name, err)
	}
	if s.err == nil || bytes.Contains(data, []byte(`"Action":"fail"`)) {
		return nil
	}
	log, _ := os.ReadFile(r.log(s)) // there is none of a suite that did not begin
	end := strings.SplitAfter(string(log), "\n")
	_, err = fmt.Fprintln(events) // the last line may have been cut short
	to := json.NewEncoder(events)
	for _, e := range []map[string]any{
		{"Action": "run"},
		{"Action": "output", "Output": s.err.Error() + "\n" + strings.Join(end[max(0, len(end)-50):], "")},
		{"Action": "fail", "Elapsed": s.took().Seconds()},
	} {
		e["Time"], e["Package"], e["Test"] = s.began, s.name, "make e2e-"+s.name
		err = errors.Join(err, to.Encode(e))
	}
	if err != nil {
		return fmt.Errorf("record the end of %s: %w", s.name, err)
	}
	return nil
}

// report has gotestsum make one JUnit file and one summary of the events of all suites. Its exit
// code says no more than that a test failed.
func (r *runner) report(suites []*suite, took time.Duration) error {
	var events bytes.Buffer
	for _, s := range suites {
		data, err := os.ReadFile(r.events(s))
		if err != nil {
			return fmt.Errorf("read the results of %s: %w", s.name, err)
		}
		events.Write(append(data, '\n'))
	}
	junit := filepath.Join(r.out, "junit.xml")
	if err := os.RemoveAll(junit); err != nil {
		return fmt.Errorf("write %s: %w", junit, err)
	}
	cmd := exec.Command("go", "tool", "-modfile="+r.tools, "gotestsum", "--raw-command", "--ignore-non-json-output-lines", "--format", "none",
		"--junitfile", junit, "--junitfile-project-name", "make e2e", "--junitfile-testsuite-name", "relative", "--", "cat")
	cmd.Stdin = &events
	summary, err := cmd.CombinedOutput()
	if _, missing := os.Stat(junit); missing != nil {
		return fmt.Errorf("write %s: %w\n%s", junit, err, summary)
	}
	for _, s := range suites {
		text := "passed"
		if s.err != nil {
			text = strings.ReplaceAll(s.err.Error(), "\n", ", ")
		}
		summary = fmt.Appendf(summary, "%-8s %8s  %s: see %s\n", s.name, s.took().Round(time.Second), text, r.log(s))
	}
	summary = fmt.Appendf(summary, "all suites in %s; all tests: %s\n", took.Round(time.Second), junit)
	fmt.Fprintf(r.to, "\n%s", summary)
	return os.WriteFile(filepath.Join(r.out, "summary.txt"), summary, 0o644)
}
