package scenarios

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/invariant"
)

// samples has one of each operation, all about the same host and the same controller.
func samples() []Op {
	host, cache := &HostOp{Host: "worker-1"}, &CacheOp{Controller: "reboot", Kind: "Node"}
	process := &ControllerOp{Controller: "reboot"}
	return []Op{
		{Hang: host}, {Panic: host}, {FillDisk: host}, {StopFeeding: host}, {StopKubelet: host}, {StopAgent: host}, {IgnoreShutdown: host}, {Pause: host}, {Resume: host},
		{PowerLoss: host}, {PowerUp: host}, {Cut: &LinkOp{Host: "worker-1"}}, {Restore: &LinkOp{Host: "worker-1"}}, {Impair: &ImpairOp{Host: "worker-1"}},
		{BreakStorage: &StorageOp{Does: StorageAttach, Host: "worker-1"}}, {MendStorage: &StorageOp{Does: StorageAttach, Host: "worker-1"}}, {DropVolume: host}, {FenceStorage: host}, {UnfenceStorage: host},
		{MoveBMC: &MoveOp{Host: "worker-1", To: "spare"}}, {AddFault: &FaultOp{Name: "slow", Host: "worker-1"}}, {RemoveFault: &FaultName{Name: "slow"}},
		{Crash: &CrashOp{Controller: "reboot"}}, {StartSecond: process}, {StopSecond: process}, {PauseController: process}, {ResumeController: process},
		{SetClock: &ClockOp{Controller: "reboot", Ahead: 1}}, {FreezeCache: cache}, {ThawCache: cache}, {ExpireWatch: cache},
		{Annotate: &AnnotateOp{}}, {RemoveAnnotation: &AnnotateOp{}}, {SetOnline: &OnlineOp{}}, {Patch: &PatchOp{}}, {Delete: &ObjectOp{}}, {Create: &CreateOp{}},
		{FailAPI: &FailAPIOp{Controller: "reboot"}}, {APIOutage: &OutageOp{}}, {EtcdOutage: new(struct{})}, {APIRestore: new(struct{})},
		{KillIronic: new(struct{})}, {StartIronic: new(struct{})}, {Heal: new(HealOp)},
	}
}

// TestHinderingOperations is which operations hold somebody up. Whoever adds one to the
// table had to say; here is to be argued that a right controller can't do without.
func TestHinderingOperations(t *testing.T) {
	want := map[string]string{
		"hang": "host/worker-1 until the boot of worker-1", "panic": "host/worker-1 until the boot of worker-1",
		"stopKubelet": "host/worker-1 until the kubelet of worker-1 is stopped", "stopFeeding": "host/worker-1 until the boot of worker-1", "fillDisk": "host/worker-1 until worker-1 has a full disk",
		"moveBMC":         "bmc/worker-1 until the BMC of worker-1 has moved",
		"addFault":        "bmc/worker-1 until fault slow of the BMC of worker-1",
		"breakStorage":    "controller/attacher until the attach of worker-1 fails",
		"pauseController": "controller/reboot until reboot stands still",
		"setClock":        "controller/reboot until the clock of reboot is wrong",
		"freezeCache":     "controller/reboot until Node is frozen in the cache of reboot",
		"expireWatch":     "controller/reboot",
		"failAPI":         "api/reboot until " + apiRefuses,
		"apiOutage":       "api until " + apiAway, "etcdOutage": "api until " + etcdAway, "killIronic": "api until " + ironicDead,
	}
	seen := map[string]bool{}
	for _, op := range samples() {
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
			t.Errorf("nobody has argued whom %s holds up: add one to samples, and whom it holds up, if anybody, to want", name)
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

// TestStatesOfOperations: what an operation begins lasts until another ends it, and both rows say
// so in the same words. One that begins and ends nothing is argued for here: without a state, a
// story may end what never began, and no report names what is still in force.
func TestStatesOfOperations(t *testing.T) {
	momentary := map[string]string{
		"stopKubelet": "no operation starts it but heal", "stopFeeding": "it ends with the boot", "hang": "it ends with the boot", "panic": "it ends with the boot",
		"stopAgent": "no operation starts it but heal", "ignoreShutdown": "no operation takes it back but heal", "powerLoss": "the host stays off until somebody switches it on, who may be a controller",
		"powerUp": "a controller may switch the host off", "dropVolume": "the storage doesn't give it back", "crash": "it restarts by itself, unless it is armed",
		"annotate": "users do it, and undo it as they like", "removeAnnotation": "users do it", "setOnline": "users do it", "patch": "users do it", "delete": "users do it", "create": "users do it",
	}
	var begun []string
	for _, op := range samples() {
		if clause := op.declared().begins(&op).clause; clause != "" {
			begun = append(begun, clause)
		}
	}
	for _, op := range samples() {
		row := op.declared()
		lasts, ends := row.begins(&op).clause != "", row.ends(&op)
		if why := momentary[op.Name()]; (why == "") != (lasts || ends != nil) {
			t.Errorf("%s begins a state: %t, ends %q, and is momentary because %q: give its row begins or ends, or argue here that nothing of it lasts", op.Name(), lasts, ends, why)
		}
		for _, end := range ends {
			if !slices.ContainsFunc(begun, func(clause string) bool { return Ended(clause, end) }) {
				t.Errorf("%s ends %q, which none of %q begins", op.Name(), end, begun)
			}
		}
	}
}

// TestOperationsAreKnownByTheirRows: what an operation means stands in its row and travels in its
// event, so that no checker, page, report or run knows one by name.
func TestOperationsAreKnownByTheirRows(t *testing.T) {
	mayKnow := map[string]string{
		"file": "it finds what is wrong with the operands that people write", "objects": "it makes the faults of BMCs from the steps that add them",
		"backendtest": "it performs each operation",
	}
	looked := map[string]int{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		room, _, below := strings.Cut(filepath.ToSlash(file), "/")
		if err != nil || !below || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || mayKnow[room] != "" {
			return err
		}
		looked[room]++
		text, err := os.ReadFile(file)
		if named := operationsNamed(string(text)); named != nil {
			t.Errorf("%s knows %s by name: a column of its row in operation.go can say what it means", file, named)
		}
		return err
	})
	if err != nil || len(looked) < 8 || looked["guarantee"] < 20 {
		t.Fatalf("of the rooms of scenarios, these files were looked at, which are too few: %v: %v", looked, err)
	}
	// The rule bites, whatever way a name or a field is used.
	for breach, want := range map[string]string{
		`if e.Key == "powerLoss" {`:           "powerLoss",
		`case "cut", "impair":`:               "cut impair",
		`if op.PowerUp != nil {`:              "PowerUp",
		`steps[i].Do.RemoveAnnotation`:        "RemoveAnnotation",
		`scenarios.Op{Heal: new(HealOp)}`:     "",
		`h.link.begin(e.At, "cut", "cut of")`: "",
		`slices.Contains(lost, "powerLoss")`:  "powerLoss",
		`if up := step.Do; up.PowerUp != nil`: "PowerUp",
	} {
		if got := strings.Join(operationsNamed(breach), " "); got != want {
			t.Errorf("%s names %q, want %q", breach, got, want)
		}
	}
}

// operationsNamed lists the operations that Go source names in a text or as a field. A name that is
// a word of English too, such as cut, must be compared with, or be a field of Op; a verb of the API
// too, such as patch, must be a field. Heal is left out: each run ends with it.
func operationsNamed(source string) (named []string) {
	for _, name := range Operations() {
		field := strings.ToUpper(name[:1]) + name[1:]
		compared, of := `(==|!=|case|case .*,) `, `\b(op|do|Do)`
		switch {
		case name != strings.ToLower(name):
			compared, of = ``, ``
		case slices.Contains([]string{"create", "delete", "patch"}, name):
			compared = `^$`
		}
		quoted := regexp.MustCompile(compared + strconv.Quote(name))
		used := regexp.MustCompile(of + `\.(` + field + `|` + strings.ToUpper(name[:3]) + name[3:] + `)\b`)
		switch {
		case name == "heal":
		case quoted.MatchString(source):
			named = append(named, name)
		case used.MatchString(source):
			named = append(named, field)
		}
	}
	return named
}

// TestPartsAreRoles: each part that a story can give away is a role by which checkers judge.
func TestPartsAreRoles(t *testing.T) {
	if known := slices.Sorted(slices.Values(KnownParts)); !slices.Equal(known, invariant.Parts()) {
		t.Errorf("stories give away the parts %s, and checkers know %s", known, invariant.Parts())
	}
}
