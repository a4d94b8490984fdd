// Package clone lets tests of the whole program run as its users do: in a clone of the
// repository, with a command fencelab that is this test binary.
package clone

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/program"
	"github.com/fencelab/fencelab/vms/keeper"
)

// Command is the name of the program.
const Command = "fencelab"

// Main is the TestMain of a package whose directory is two below the root. The test binary is a
// keeper, or fencelab itself when a script or fencelab calls it so, or the tests, which run at
// the root of the repository.
func Main(m *testing.M) {
	container.Main()
	keeper.Main()
	// A lab calls its controllers by names of their own.
	if name := filepath.Base(os.Args[0]); name == Command || strings.HasPrefix(name, Command+"-") {
		if filepath.IsAbs(os.Args[0]) {
			os.Args[0] = Command // as the script says it; testscript looks it up
		}
		program.Main() // does not return
	}
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){Command: func() { program.Main() }})
}

// Fill makes dir look like the root of a clone, as far as the command reads it.
func Fill(dir string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, name := range []string{"scenarios", "docs", "systems", "test"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Exits is the command of a script that runs another, which must end with an exit code:
// exits CODE COMMAND...
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}
