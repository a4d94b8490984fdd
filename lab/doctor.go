package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/ironic"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/vms"
)

// tools are for who works in a lab that is kept; nothing of the lab needs them.
var tools = []struct{ name, remedy string }{
	{"kubectl", "to work with lab up: any kubectl that is compatible with Kubernetes 1.36"},
	{"virsh", "to inspect the virtual machines of lab up; run: vms/assets.sh"},
}

// Doctor says what of all that a lab needs is here, a line each, and reports whether a
// lab can run.
func Doctor(ctx context.Context, w io.Writer) bool {
	line := func(good bool, subject, detail string) {
		mark := "ok     "
		if !good {
			mark = "MISSING"
		}
		fmt.Fprintf(w, "  %s  %-22s %s\n", mark, subject, strings.ReplaceAll(detail, "\n", "\n"+strings.Repeat(" ", 34)))
	}
	for _, f := range cluster.Preflight(ctx, cluster.Options{}) {
		line(f.Remedy == "", f.Name, strings.TrimSuffix(f.State+"; "+f.Remedy, "; "))
	}
	for _, f := range vms.Preflight(ctx, hosts.DefaultAssets(), "") {
		line(f.OK || !f.Needed, f.Subject, f.Detail)
	}
	short := false
	for _, f := range room() {
		short = short || f.Remedy != ""
		line(f.Remedy == "", f.Name, strings.TrimSuffix(f.State+"; "+f.Remedy, "; "))
	}
	models, mark := "they can run, without virtual machines: --hosts model", "ok     "
	if err := Check(ctx, Options{Hosts: Model}); err != nil {
		models, mark = "they cannot run here, and need only etcd and kube-apiserver: run make controlplane", "MISSING"
	}
	fmt.Fprintf(w, "  %s  %-22s %s\n", mark, "model hosts", models)
	nodes, mark := "they can run: --hosts node", "ok     "
	if err := Check(ctx, Options{Hosts: Node}); err != nil {
		nodes, mark = "they cannot run here (only --hosts node and --cluster standard need them): run make nodes", "absent "
	}
	fmt.Fprintf(w, "  %s  %-22s %s\n", mark, "real nodes", nodes)
	optional := func(f child.Finding) {
		mark := map[bool]string{true: "ok", false: "none"}[f.Remedy == ""]
		fmt.Fprintf(w, "  %-7s  %-22s %s\n", mark, f.Name, strings.TrimSuffix(f.State+"; "+f.Remedy, "; "))
	}
	var without []string
	for _, f := range kind.Preflight(ctx) { // only --cluster kind needs it
		f.Name = "kind: " + f.Name
		if f.Remedy != "" && len(without) == 0 {
			without = append(without, "clusters of kind's: run make kind")
		}
		optional(f)
	}
	missing := false
	for _, f := range ironic.Preflight(ctx, "") { // only --power ironic, and stories about it, need it
		missing = missing || f.Remedy != ""
		optional(f)
	}
	for _, tool := range tools {
		state, mark := "", "ok     "
		path, err := exec.LookPath(tool.name)
		if state = path; err != nil {
			state, mark = tool.remedy, "none   "
		}
		fmt.Fprintf(w, "  %s  %-22s %s\n", mark, tool.name, state)
	}
	if missing {
		without = append(without, "power through Ironic: run lab/ironic/install.sh")
	}
	said, whole := verdict(Check(ctx, Options{}) == nil, Check(ctx, Options{Hosts: Model}) == nil, short, without)
	fmt.Fprintf(w, "\n%s\n", said)
	return whole
}

// verdict says what can run here and what to do for the rest, and whether the lab can run as it is.
// What isn't built comes before room that is short: building needs that room as well, and the
// lines of the room say which and how much.
func verdict(guests, models, short bool, without []string) (string, bool) {
	room := ""
	if short {
		room = "; make room first (see the lines of memory and space)"
	}
	switch {
	case !models:
		return "The simulator can run here; the lab cannot. Run: make lab" + room, false
	case !guests:
		return "The simulator can run here, and so can the lab with --hosts model; it cannot run with guests. Run: make lab" + room, false
	case short:
		return "The simulator can run here; the lab has too little room (see the lines of memory and space)", false
	case len(without) > 0:
		return fmt.Sprintf("Every world can run here, without %s.", strings.Join(without, "; and without ")), true
	}
	return "Every world can run here.", true
}

// What a lab of three hosts takes, with guests. Real nodes take 1 GiB of memory each instead of a
// quarter of that, and their disks grow by what is written to them.
const memoryNeeded, diskNeeded = 3 << 30, 4 << 30

// room looks for the memory of the machine and for space where labs keep what they make.
func room() []child.Finding {
	findings := []child.Finding{memoryFinding()}
	for _, dir := range []struct{ name, path, remedy string }{
		{"space for labs", os.TempDir(), "free some, or set TMPDIR to a directory with a short name and more space"},
		{"space for the cache", filepath.Dir(cluster.DefaultBin()), "free some: what is built comes here"},
	} {
		f := child.Finding{Name: dir.name}
		var fs unix.Statfs_t
		at := dir.path
		for ; ; at = filepath.Dir(at) { // that which isn't there yet will be made below the nearest that is
			if err := unix.Statfs(at, &fs); err == nil || at == filepath.Dir(at) {
				break
			}
		}
		free := int64(fs.Bavail) * int64(fs.Bsize)
		f.State = fmt.Sprintf("%s free at %s", gibibytes(free), dir.path)
		if free < diskNeeded {
			f.Remedy = fmt.Sprintf("a lab takes up to %s: %s", gibibytes(diskNeeded), dir.remedy)
		}
		findings = append(findings, f)
	}
	return findings
}

// memoryFinding looks how much memory can be had, also within the limits of a container.
func memoryFinding() child.Finding {
	available := machine.Available(machine.Root)
	f := child.Finding{Name: "memory", State: gibibytes(available) + " available"}
	if available < memoryNeeded {
		f.Remedy = fmt.Sprintf("a lab of three guests takes up to %s: end other programs, or use --hosts model", gibibytes(memoryNeeded))
	}
	return f
}

// gibibytes is a number of bytes as a person reads it.
func gibibytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
