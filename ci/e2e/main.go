// Command e2e runs the suites of make e2e, and makes one JUnit file and one summary of all that they report.
//
// A suite NAME is the target e2e-NAME of the Makefile, which leaves what its tests say below the directory of results,
// in events/NAME.json. Each argument is a group of suites, which begin in that order and run side by side; groups run
// one after the other. All run, whatever comes of one.
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
)

// patience is for suites that were interrupted and clean up.
const patience = 2 * time.Minute

func main() {
	r := runner{to: os.Stdout}
	flag.StringVar(&r.out, "out", "out/e2e", "`directory` of the results")
	flag.StringVar(&r.tools, "tools", "ci/tools/go.mod", "`file` of the module with gotestsum")
	flag.IntVar(&r.procs, "procs", 0, "how many stories are told, and suites of a group run, at once (default: as many as there are cores to be had, at least 1)")
	flag.DurationVar(&r.silence, "silence", 30*time.Second, "say what runs when nothing else was said for so long")
	onlyLook := flag.Bool("look", false, "only print how many cores there are to be had")
	flag.Parse()
	if *onlyLook {
		procs, err := allowed()
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			os.Exit(1)
		}
		fmt.Println(procs)
		return
	}
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
	procs      int
	silence    time.Duration

	mu   sync.Mutex
	to   io.Writer
	said time.Time // when something was said last
}

// run returns the exit code: 0 if all suites passed, 130 if they were interrupted.
func (r *runner) run(ctx context.Context, groups []string) (int, error) {
	began := time.Now()
	if r.procs <= 0 {
		procs, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return 130, errors.New("interrupted before a suite began")
		case err != nil:
			return 1, fmt.Errorf("look at how busy the cores are: %w; say how many stories to tell at once: PROCS=n", err)
		}
		r.procs = procs
		fmt.Fprintf(r.to, "stories at once: %d, by how busy the cores are (PROCS=n says otherwise)\n", procs)
	}
	if err := os.MkdirAll(filepath.Join(r.out, "events"), 0o755); err != nil {
		return 1, fmt.Errorf("create the directory of results: %w", err)
	}
	var all []*suite
	for _, group := range groups {
		var suites []*suite
		for _, name := range strings.Fields(group) {
			suites = append(suites, &suite{Name: name, Log: filepath.Join(r.out, name+".log")})
		}
		r.runGroup(ctx, suites)
		all = append(all, suites...)
	}
	code, errs := 0, []error(nil)
	for _, s := range all {
		if s.Err != nil {
			code = 1
		}
		errs = append(errs, r.collect(s))
	}
	junit := filepath.Join(r.out, "junit.xml")
	errs = append(errs, r.junit(all, junit))
	var summary bytes.Buffer
	summarize(&summary, all, time.Since(began), junit)
	fmt.Fprintf(r.to, "\n%s", &summary)
	errs = append(errs, os.WriteFile(filepath.Join(r.out, "summary.txt"), summary.Bytes(), 0o644))
	err := errors.Join(errs...)
	switch {
	case ctx.Err() != nil:
		code = 130
	case err != nil:
		code = 1
	}
	return code, err
}

// runGroup runs suites side by side, and says what runs when they are silent.
func (r *runner) runGroup(ctx context.Context, suites []*suite) {
	var running sync.WaitGroup
	free := make(chan struct{}, r.procs)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range suites {
			free <- struct{}{}
			running.Go(func() {
				defer func() { <-free }()
				if ctx.Err() != nil {
					s.Err = errors.New("interrupted before it began")
					return
				}
				r.clock(&s.Began)
				s.Err = r.runSuite(ctx, s)
				r.clock(&s.Ended)
			})
		}
		running.Wait()
	}()
	r.clock(&r.said)
	for {
		select {
		case <-done:
			return
		case <-time.After(r.silence / 10):
			r.progress(suites)
		}
	}
}

// clock takes the time of what others ask for.
func (r *runner) clock(at *time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*at = time.Now()
}

// progress says what runs, if nothing else has been said for long.
func (r *runner) progress(suites []*suite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.said) < r.silence {
		return
	}
	r.said = now
	for _, s := range suites {
		if s.Began.IsZero() || !s.Ended.IsZero() {
			continue
		}
		data, _ := os.ReadFile(r.events(s)) // it may have said nothing yet
		r.print(s.Name, (&suite{Tests: parse(data)}).progress(now))
	}
}

func (r *runner) events(s *suite) string { return filepath.Join(r.out, "events", s.Name+".json") }

func (r *runner) say(name, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = time.Now()
	r.print(name, line)
}

func (r *runner) print(name, line string) { fmt.Fprintf(r.to, "%-8s| %s\n", name, line) }

// runSuite runs a suite in a session of its own: an interrupt has to reach its tests, which may be far below make, and
// make e2e may have been asked to end by a signal that make doesn't pass on as one.
func (r *runner) runSuite(ctx context.Context, s *suite) error {
	log, err := os.Create(s.Log)
	if err != nil {
		return fmt.Errorf("write down what it says: %w", err)
	}
	defer log.Close()
	said := &lines{say: func(line string) { r.say(s.Name, line) }}
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "e2e-"+s.Name, fmt.Sprintf("PROCS=%d", r.procs))
	cmd.Stdout = io.MultiWriter(log, said)
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = patience
	err = runSession(cmd)
	said.flush()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// runSession runs a command in a session of its own, with the priority that this process has: the kernel divides its time
// among sessions before it does among their processes (sched(7), autogroup). Where it doesn't, or a higher one is not
// allowed, that is no loss.
func runSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil {
		nice := 20 - raw // the system call adds what it may not return
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), strconv.AppendInt(nil, int64(nice), 10), 0)
	}
	return cmd.Wait()
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

// collect reads what the suite's tests said. If it failed and no test did, such as when it couldn't be built, the
// suite itself is a test that failed, with the end of its output.
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

// junit has gotestsum write all events as JUnit. Its exit code says no more than that a test failed.
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
