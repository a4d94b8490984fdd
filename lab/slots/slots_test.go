package slots

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
)

// TestMain lets the test binary be another process that takes slots, and keeps them until it is
// killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SLOTS_OF"); dir != "" {
		if _, err := gateIn(dir).Take(context.Background(), "the other", 3, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("taken")
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// gateIn has eight slots.
func gateIn(dir string) *Gate {
	return &Gate{Dir: dir, Size: machine.Size{Cores: 1, Memory: 1 << 40}, HasRoom: func() bool { return true }, Available: func() int64 { return 1 << 40 }}
}

func gate(t *testing.T) *Gate {
	t.Setenv(Variable, "")
	return gateIn(filepath.Join(t.TempDir(), "slots"))
}

// take takes slots that are there, and lets the next begin.
func take(t *testing.T, g *Gate, cost int) *Turn {
	t.Helper()
	turn, err := g.Take(t.Context(), "a test", cost, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(turn.Release)
	turn.Begun()
	return turn
}

// refused shows that there is no room now.
func refused(t *testing.T, g *Gate, cost int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*poll)
	defer cancel()
	if turn, err := g.Take(ctx, "one too many", cost, nil); !errors.Is(err, context.DeadlineExceeded) {
		turn.Release()
		t.Errorf("there was room for %d more: %v", cost, err)
	}
}

func TestCount(t *testing.T) {
	for size, want := range map[machine.Size]int{
		{Cores: 2, Memory: 24 << 30}:   16,
		{Cores: 64, Memory: 4 << 30}:   8,
		{Cores: 1, Memory: 6 << 30}:    8,
		{Cores: 0.1, Memory: 64 << 20}: 1,
	} {
		if got := (&Gate{Size: size}).Count(); got != want {
			t.Errorf("%v has %d slots, want %d", size, got, want)
		}
	}
}

func TestSlotsAreShared(t *testing.T) {
	g := gate(t)
	first := take(t, g, 5)
	take(t, g, 3)
	refused(t, g, 1)
	first.Release()
	first.Release() // which does nothing
	take(t, g, 5)
	refused(t, g, 1)
}

// TestFirstComeFirstServed: what is small and comes later does not overtake what is big.
func TestFirstComeFirstServed(t *testing.T) {
	g := gate(t)
	running := take(t, g, 5)
	let := make(chan string, 2)
	wait := func(name string, cost int) {
		turn, err := g.Take(t.Context(), name, cost, nil)
		if err != nil {
			t.Error(err)
		}
		let <- name
		turn.Begun()
		t.Cleanup(turn.Release)
	}
	go wait("the big one", 6)
	for len(g.line()) == 0 {
		time.Sleep(poll / 10)
	}
	killed, err := os.Create(filepath.Join(g.Dir, inLine+"0")) // of one that is gone, before it
	if err != nil {
		t.Fatal(err)
	}
	_ = killed.Close() // nothing was written
	go wait("the small one", 1)
	time.Sleep(3 * poll)
	select {
	case name := <-let:
		t.Fatalf("%s was let in", name)
	default:
	}
	running.Release()
	if first, second := <-let, <-let; first != "the big one" || second != "the small one" {
		t.Errorf("let in were %s and %s", first, second)
	}
	if left := g.line(); len(left) > 0 {
		t.Errorf("in the line are still %v", left)
	}
}

// TestMoreThanThereIs: what costs more than the machine has runs alone, and not never.
func TestMoreThanThereIs(t *testing.T) {
	g := gate(t)
	all := take(t, g, 100)
	refused(t, g, 1)
	all.Release()
	take(t, g, 1)
	refused(t, g, 100)
}

func TestBeginningsAreOneAfterTheOther(t *testing.T) {
	g := gate(t)
	first, err := g.Take(t.Context(), "the first", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, g, 1)
	first.Begun()
	take(t, g, 1).Release()
	second, err := g.Take(t.Context(), "the second", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	second.Release() // one that ends before it has begun is in the way of no other
	take(t, g, 1)
}

// TestBusyMachine: another waits while the cores are busy, but a machine on which nothing of ours
// runs lets one in.
func TestBusyMachine(t *testing.T) {
	g := gate(t)
	g.HasRoom = func() bool { return false }
	alone := take(t, g, 1)
	refused(t, g, 1)
	alone.Release()
	take(t, g, 1)
}

// TestKilledHolder: the slots and the door of a process that is killed are free again.
func TestKilledHolder(t *testing.T) {
	g := gate(t)
	other := exec.Command("/proc/self/exe")
	other.Env = append(os.Environ(), "SLOTS_OF="+g.Dir)
	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Process.Kill()
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "taken\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	refused(t, g, 8)
	if got := g.describe(8); !strings.Contains(got, fmt.Sprintf("3 are taken by the other, process %d", other.Process.Pid)) {
		t.Errorf("who waits hears: %s", got)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	take(t, g, 8)
}

// TestVariable: who was started by a holder takes nothing, and who is to be last takes all, after
// those that come later.
func TestVariable(t *testing.T) {
	g := gate(t)
	all := take(t, g, 8)
	t.Setenv(Variable, Held)
	turn, err := g.Take(t.Context(), "what a holder has started", 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	turn.Begun()
	turn.Release()
	all.Release()

	t.Setenv(Variable, "")
	running := take(t, g, 1)
	t.Setenv(Variable, Last)
	let := make(chan *Turn)
	go func() {
		turn, err := g.Take(t.Context(), "the last", 1, nil)
		if err != nil {
			t.Error(err)
		}
		let <- turn
	}()
	time.Sleep(2 * poll)
	t.Setenv(Variable, "")
	later := take(t, g, 1)
	running.Release()
	select {
	case <-let:
		t.Fatal("it didn't wait for all others")
	case <-time.After(2 * poll):
	}
	later.Release()
	defer (<-let).Release()
	refused(t, g, 1)
}
