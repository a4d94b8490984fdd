package lab

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/fencelab/fencelab/ci/child"
	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/cluster/kind"
	"github.com/fencelab/fencelab/ci/ironic"
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
	for _, f := range vms.Preflight(ctx, DefaultAssets(), "") {
		line(f.OK || !f.Needed, f.Subject, f.Detail)
	}
	nodes, mark := "they can run: --hosts node", "ok     "
	if err := Check(ctx, Options{Hosts: Node}); err != nil {
		nodes, mark = "they cannot run here (only --hosts node and --cluster standard need them): run make nodes", "absent "
	}
	fmt.Fprintf(w, "  %s  %-22s %s\n", mark, "real nodes", nodes)
	optional := func(f child.Finding) {
		mark := map[bool]string{true: "ok", false: "none"}[f.Remedy == ""]
		fmt.Fprintf(w, "  %-7s  %-22s %s\n", mark, f.Name, strings.TrimSuffix(f.State+"; "+f.Remedy, "; "))
	}
	for _, f := range kind.Preflight(ctx) { // only --cluster kind needs it
		f.Name = "kind: " + f.Name
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
	switch {
	case Check(ctx, Options{}) == nil && missing:
		fmt.Fprintln(w, "\nEvery world can run here, except power through Ironic. Run: ci/ironic/install.sh")
		return true
	case Check(ctx, Options{}) == nil:
	case Check(ctx, Options{Hosts: Model}) == nil:
		fmt.Fprintln(w, "\nThe simulator can run here, and so can the lab with --hosts model; it cannot run with guests. Run: make lab")
		return false
	default:
		fmt.Fprintln(w, "\nThe simulator can run here; the lab cannot. Run: make lab")
		return false
	}
	fmt.Fprintln(w, "\nEvery world can run here.")
	return true
}
