// Package bisect finds the first commit of a history at which something fails that can be tried
// once: it needs no second try of a commit.
package bisect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fencelab/fencelab/vms/keeper"
)

// Verdict is that of a try of a commit.
type Verdict int

// The verdicts. Skipped is of a commit that can't be tried.
const (
	Untried Verdict = iota
	Good
	Bad
	Skipped
)

// Find looks for the first bad one of n commits, of which the first is good and the last bad as far
// as is known. Try tries one, and is asked for the fewest that it takes. It returns the last good
// and the first bad one; between them are only such that were skipped.
func Find(n int, try func(i int) (Verdict, error)) (good, bad int, err error) {
	verdicts := make([]Verdict, n)
	for good, bad = 0, n-1; ; {
		next, ok := middle(verdicts, good, bad)
		if !ok {
			return good, bad, nil
		}
		if verdicts[next], err = try(next); err != nil {
			return good, bad, err
		}
		switch verdicts[next] {
		case Good:
			good = next
		case Bad:
			bad = next
		}
	}
}

// middle is the commit nearest to the middle between two that was not tried yet.
func middle(verdicts []Verdict, good, bad int) (int, bool) {
	at := (good + bad) / 2
	for by := 0; at-by > good || at+by < bad; by++ {
		for _, i := range []int{at - by, at + by} {
			if i > good && i < bad && verdicts[i] == Untried {
				return i, true
			}
		}
	}
	return 0, false
}

// History is the commits of a repository from a good one to a bad one.
type History struct {
	// Top is the root of the repository's work tree.
	Top string
	// Commits are their hashes, from the good one to the bad one, along first parents.
	Commits []string

	keeper *keeper.Keeper
	tree   string // the work tree of commits that are tried, once there is one
}

// Open reads the history of the repository that has a directory.
func Open(ctx context.Context, dir, good, bad string) (*History, error) {
	top, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("find the repository of %s: %w; bisect in a clone, or name a package in one with --module", dir, err)
	}
	h := &History{Top: top}
	var ends [2]string
	for i, rev := range []string{good, bad} {
		if ends[i], err = git(ctx, top, "rev-parse", "--verify", "--end-of-options", rev+"^{commit}"); err != nil {
			return nil, fmt.Errorf("find the commit %s: %w", rev, err)
		}
	}
	list, err := git(ctx, top, "rev-list", "--first-parent", "--reverse", ends[0]+".."+ends[1])
	if err != nil {
		return nil, err
	}
	h.Commits = append([]string{ends[0]}, strings.Fields(list)...)
	if _, err := git(ctx, top, "merge-base", "--is-ancestor", ends[0], ends[1]); err != nil || len(h.Commits) < 2 {
		return nil, fmt.Errorf("%s is no ancestor of %s: name a good commit that the bad one was made from", good, bad)
	}
	return h, nil
}

// Subject is the first line of a commit's message, after its short hash.
func (h *History) Subject(ctx context.Context, i int) string {
	text, err := git(ctx, h.Top, "show", "-s", "--format=%h %s", h.Commits[i])
	if err != nil {
		return h.Commits[i]
	}
	return text
}

// Checkout has the work tree of a commit, which is not the user's own. It is beside that, so that a
// go.mod finds what it replaces by a path, and is removed when the history is closed or this
// process is gone.
func (h *History) Checkout(ctx context.Context, i int) (dir string, err error) {
	if h.tree != "" {
		_, err = git(ctx, h.tree, "checkout", "--quiet", "--force", "--detach", h.Commits[i])
		return h.tree, err
	}
	if h.keeper, err = keeper.Start(); err != nil {
		return "", err
	}
	if h.tree, err = os.MkdirTemp(filepath.Dir(h.Top), ".fencelab-bisect-"); err != nil {
		return "", fmt.Errorf("make a work tree beside %s: %w", h.Top, err)
	}
	const remove = `git -C "$0" worktree remove --force "$1" 2>/dev/null; rm -rf "$1"; git -C "$0" worktree prune`
	if err := h.keeper.Do(nil, "/bin/sh", "-c", remove, h.Top, h.tree); err != nil {
		return "", errors.Join(err, os.Remove(h.tree))
	}
	_, err = git(ctx, h.Top, "worktree", "add", "--quiet", "--detach", h.tree, h.Commits[i])
	return h.tree, err
}

// Close removes the work tree.
func (h *History) Close() error {
	if h.keeper == nil {
		return nil
	}
	return h.keeper.Close()
}

// git runs a command of git and returns what it says.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	out, err := cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(ended.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
