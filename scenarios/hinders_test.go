package scenarios

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestHinderingOperations is which operations hold somebody up. Whoever adds one to the
// table had to say; here is to be argued that a right controller can't do without.
func TestHinderingOperations(t *testing.T) {
	want := map[string]string{
		"hang": "host/worker-1 until the boot of worker-1", "panic": "host/worker-1 until the boot of worker-1",
		"stopFeeding": "host/worker-1 until the boot of worker-1", "fillDisk": "host/worker-1 until worker-1 has a full disk",
		"addFault":        "bmc/worker-1 until fault slow of the BMC of worker-1",
		"pauseController": "controller/reboot until reboot stands still",
		"setClock":        "controller/reboot until the clock of reboot is wrong",
		"freezeCache":     "controller/reboot until Node is frozen in the cache of reboot",
		"expireWatch":     "controller/reboot",
		"failAPI":         "api/reboot until " + apiRefuses,
		"apiOutage":       "api until " + apiAway, "etcdOutage": "api until " + etcdAway, "killIronic": "api until " + ironicDead,
	}
	host, cache := &HostOp{Host: "worker-1"}, &CacheOp{Controller: "reboot", Kind: "Node"}
	process := &ControllerOp{Controller: "reboot"}
	ops := []Op{
		{Hang: host}, {Panic: host}, {FillDisk: host}, {StopFeeding: host}, {StopKubelet: host}, {IgnoreShutdown: host}, {Pause: host}, {Resume: host},
		{PowerLoss: host}, {PowerUp: host}, {Cut: &LinkOp{Host: "worker-1"}}, {Restore: &LinkOp{Host: "worker-1"}}, {Impair: &ImpairOp{Host: "worker-1"}},
		{AddFault: &FaultOp{Name: "slow", Host: "worker-1"}}, {RemoveFault: &FaultName{Name: "slow"}},
		{Crash: &CrashOp{Controller: "reboot"}}, {StartSecond: process}, {StopSecond: process}, {PauseController: process}, {ResumeController: process},
		{SetClock: &ClockOp{Controller: "reboot", Ahead: 1}}, {FreezeCache: cache}, {ThawCache: cache}, {ExpireWatch: cache},
		{Annotate: &AnnotateOp{}}, {RemoveAnnotation: &AnnotateOp{}}, {SetOnline: &OnlineOp{}}, {Patch: &PatchOp{}}, {Delete: &ObjectOp{}}, {Create: &CreateOp{}},
		{FailAPI: &FailAPIOp{Controller: "reboot"}}, {APIOutage: &OutageOp{}}, {EtcdOutage: new(struct{})}, {APIRestore: new(struct{})},
		{KillIronic: new(struct{})}, {StartIronic: new(struct{})}, {Heal: new(HealOp)},
	}
	seen := map[string]bool{}
	for _, op := range ops {
		seen[op.Name()] = true
		got := ""
		if h := op.declared().hinders(&op, &invariant.Timings{Faults: map[string]invariant.Fault{"slow": {HoldsBack: true}}}); h != nil {
			got = h.Party
			if h.Name != "" {
				got += " until " + h.Name
			}
		}
		if got != want[op.Name()] {
			t.Errorf("%s holds up %q, want %q", op.Name(), got, want[op.Name()])
		}
	}
	for _, name := range Operations() {
		if !seen[name] {
			t.Errorf("nobody has argued whom %s holds up: add it here", name)
		}
	}
	for _, nobody := range []Op{
		{AddFault: &FaultOp{Name: "drops-a-header", Host: "worker-1"}}, {SetClock: &ClockOp{Host: "worker-1", Ahead: 1}},
		{SetClock: &ClockOp{Controller: "reboot"}}, {FailAPI: &FailAPIOp{Times: 1}},
	} {
		if h := nobody.declared().hinders(&nobody, &invariant.Timings{}); h != nil {
			t.Errorf("%s holds up %s", nobody, h.Party)
		}
	}
}

// TestCheckersKnowNoOperation: an operation's row and its event name the party that it holds
// up, so that no checker has to know the operation by name.
func TestCheckersKnowNoOperation(t *testing.T) {
	files, err := filepath.Glob("invariant/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no checkers: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range Operations() {
			if strings.Contains(string(text), strconv.Quote(name)) {
				t.Errorf("%s knows the operation %s by name", file, name)
			}
		}
	}
}
