package cmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/cmd/bisect"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

func bisectCommand(module *string) *cobra.Command {
	b := &bisection{}
	cmd := &cobra.Command{
		Use:   "bisect PLAN",
		Short: "Find the commit since which a saved plan fails",
		Long: `Bisect builds fencelab with the controllers of commits between a good and a bad one, and
plays the plan.txt of a saved run with each. A plan comes out the same each time, so one
try of a commit is enough: among 30 commits five are built. What can't be built, or
doesn't know something that the plan names, is skipped. It works in a work tree of its own
beside the repository, which it removes.

The repository is that of --module, or the one in which fencelab itself is built.`,
		Example: "  fencelab bisect out/story-sim-409d1f136f9a/plan.txt --good v1.2.0 --bad HEAD --module ./fencer",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completePlans,
		// The program is that of each commit, and not of the work tree as it is.
		PersistentPreRunE: func(cmd *cobra.Command, args []string) (err error) {
			b.module, err = settle(cmd, args, *module, cmd.ErrOrStderr())
			return exit.BadInput(err)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if b.good == "" {
				return exit.BadInput(errors.New("--good: name a commit with which the plan comes out as expected"))
			}
			b.out, b.talk = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return b.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&b.good, "good", "", "a commit with which the plan comes out as expected")
	cmd.Flags().StringVar(&b.bad, "bad", "HEAD", "a commit made from that, with which it doesn't")
	cmd.Flags().StringVar(&b.dir, "out", "out/bisect", "directory for the reports of the last good and of the first bad commit")
	return cmd
}

// bisection is one invocation of bisect.
type bisection struct {
	module, good, bad, dir string
	out, talk              io.Writer

	history *bisect.History
	plan    string // its file, without the digest that only one commit can have
	below   string // where the package is, seen from the root of its repository
	built   int
}

// tried holds what came of a plan at a commit.
type tried struct {
	Digest string `json:"digest"`
	Reason string `json:"reason"`
}

// digestLine is the line of a plan's file that has its digest.
var digestLine = regexp.MustCompile(`(?m)^digest: .*\n`)

func (b *bisection) run(ctx context.Context, plan string) (err error) {
	dir, _, _ := strings.Cut(b.module, ":")
	if dir == "" {
		dir = "."
	}
	dir, err = filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return exit.BadInput(err)
	}
	text, err := os.ReadFile(plan)
	if err != nil {
		return exit.BadInput(err)
	}
	if b.history, err = bisect.Open(ctx, dir, b.good, b.bad); err != nil {
		return exit.BadInput(err)
	}
	if b.below, err = filepath.Rel(b.history.Top, dir); err != nil {
		return exit.BadInput(err)
	}
	if b.dir, err = filepath.Abs(b.dir); err == nil {
		err = os.MkdirAll(b.dir, 0o755)
	}
	if err != nil {
		return exit.BadInput(err)
	}
	b.plan = filepath.Join(b.dir, "plan.txt")
	if err := os.WriteFile(b.plan, digestLine.ReplaceAll(text, nil), 0o644); err != nil {
		return exit.BadInput(err)
	}
	defer func() {
		if failed := b.history.Close(); failed != nil && err == nil {
			err = exit.Coded(exit.Internal, failed)
		}
	}()
	n := len(b.history.Commits)
	fmt.Fprintf(b.talk, "%s between them\n", phrase.Count(n-2, "commit"))
	verdicts := make([]bisect.Verdict, n)
	good, bad, err := bisect.Find(n, func(i int) (bisect.Verdict, error) {
		verdicts[i], err = b.try(ctx, i)
		return verdicts[i], err
	})
	// The search takes the user's word for both ends. Their pages are wanted now, so try them.
	for i, want := range map[int]bisect.Verdict{good: bisect.Good, bad: bisect.Bad} { // order does not matter: both, or none
		if err == nil && verdicts[i] == bisect.Untried {
			if verdicts[i], err = b.try(ctx, i); err == nil && verdicts[i] != want {
				err = exit.BadInput(fmt.Errorf("%s is not %s: the plan comes out otherwise there", b.history.Subject(ctx, i), map[bisect.Verdict]string{bisect.Good: "good", bisect.Bad: "bad"}[want]))
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return exit.Coded(exit.Unknown, errors.New("interrupted; the work tree has been removed"))
	case err != nil:
		return err
	}
	return b.say(ctx, good, bad)
}

// say prints the answer.
func (b *bisection) say(ctx context.Context, good, bad int) error {
	for _, row := range []struct {
		word string
		i    int
	}{{"last good", good}, {"first bad", bad}} {
		dir := b.place(row.i)
		var t tried
		data, err := os.ReadFile(filepath.Join(dir, "report.json"))
		if err == nil {
			err = json.Unmarshal(data, &t)
		}
		if err != nil {
			return exit.Coded(exit.Internal, fmt.Errorf("read what came of the plan: %w", err))
		}
		fmt.Fprintf(b.out, "%s: %s\n  digest %s  %s\n", row.word, b.history.Subject(ctx, row.i), t.Digest, filepath.Join(dir, page.Name))
		if t.Reason != "" {
			fmt.Fprintf(b.out, "  %s\n", t.Reason)
		}
	}
	fmt.Fprintf(b.out, "%s built\n", phrase.Count(b.built, "commit"))
	if between := bad - good - 1; between > 0 {
		fmt.Fprintf(b.out, "%s between them can't be tried, and may be the first bad one as well\n", phrase.Count(between, "commit"))
		return exit.Ended(exit.Unknown)
	}
	return nil
}

// place is the directory of the report of a commit.
func (b *bisection) place(i int) string { return filepath.Join(b.dir, b.history.Commits[i][:12]) }

// try plays the plan with a commit. The error has an exit code.
func (b *bisection) try(ctx context.Context, i int) (bisect.Verdict, error) {
	b.built++
	tree, err := b.history.Checkout(ctx, i)
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	subject := b.history.Subject(ctx, i)
	said := func(word, why string) {
		fmt.Fprintf(b.talk, "%-8s %s%s\n", word, subject, why)
	}
	program, remove, err := b.build(ctx, filepath.Join(tree, b.below))
	if remove != nil {
		defer remove()
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		said("skipped", ": it can't be built: "+phrase.FirstLine(err.Error()))
		return bisect.Skipped, nil
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "replay", b.plan, "--out", b.place(i))
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, append(os.Environ(), moduleVariable+"="+b.module)
	err = cmd.Run()
	var ended *exec.ExitError
	code := 0
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &ended):
		code = ended.ExitCode()
	case err != nil:
		return 0, exit.Coded(exit.Internal, err)
	}
	switch code {
	case exit.Held:
		said("good", "")
		return bisect.Good, nil
	case exit.Violated, exit.Unknown:
		said("bad", "")
		return bisect.Bad, nil
	}
	said("skipped", ": it can't play the plan: "+phrase.FirstLine(strings.TrimSpace(out.String())))
	return bisect.Skipped, nil
}

// build builds fencelab with the controllers in a directory of a commit, or fencelab itself if that
// is its repository. Remove, if there is one, is called when the program is no longer needed.
func (b *bisection) build(ctx context.Context, dir string) (program string, remove func(), err error) {
	if b.module == "" {
		program = filepath.Join(dir, "bin", "fencelab")
		_, err = goTool(ctx, dir, "build", "-tags=libvirt_dlopen", quickly, "-o", program, ".")
		return program, nil, err
	}
	_, name, _ := strings.Cut(b.module, ":")
	program, err = buildModule(ctx, dir, name, io.Discard)
	if place, failed := moduleCache(dir, cmp.Or(name, moduleName)); failed == nil {
		remove = func() { _ = os.RemoveAll(place) } // it is a cache
	}
	return program, remove, err
}
