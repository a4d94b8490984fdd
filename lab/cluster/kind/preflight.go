package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/fencelab/fencelab/lab/child"
)

const (
	buildIt = "run make kind, which builds it (15 minutes from nothing)"
	// room is the space on disk for a daemon of our own, with the node's image and what the node
	// writes.
	room = 3 << 30
)

// Preflight looks for what [Create] needs.
func Preflight(ctx context.Context) []child.Finding {
	engine, err := findEngine(ctx)
	var findings []child.Finding
	add := func(name, state, remedy string) {
		findings = append(findings, child.Finding{Name: name, State: state, Remedy: remedy})
	}
	switch {
	case err != nil:
		add("containers", strings.ReplaceAll(err.Error(), "\n", "; "), remedyOf(err))
	case engine == nil:
		add("containers", "a Docker daemon of our own"+lacking(), "")
	default:
		add("containers", engine.title+" answers", "")
	}
	if _, err := os.Stat("/proc/self/cgroup"); err != nil || !cgroups() {
		add("cgroups", "none are mounted below /sys/fs/cgroup", "run: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
	} else {
		add("cgroups", map[bool]string{true: "of version 1, which a node tolerates", false: "of version 2"}[cgroupV1()], "")
	}
	switch _, err := os.Stat(Archive()); {
	case engine != nil && engine.has(ctx, defaults.Image):
		add("node's image", defaults.Image, "")
	case err == nil:
		add("node's image", Archive(), "")
	case engine != nil && engine.canPull(ctx) == nil:
		add("node's image", defaults.Image+" can be pulled", "")
	default:
		add("node's image", err.Error(), buildIt)
	}
	return findings
}

// cgroups reports whether there are any.
func cgroups() bool {
	entries, err := os.ReadDir("/sys/fs/cgroup")
	return err == nil && len(entries) > 0
}

// noDaemon is why no daemon of our own can be started, and the command that cures it.
type noDaemon struct{ reason, remedy string }

func (e *noDaemon) Error() string { return "a Docker daemon of our own: " + e.reason }

func remedyOf(err error) string {
	var no *noDaemon
	if errors.As(err, &no) {
		return no.remedy
	}
	return buildIt
}

// canStartDaemon is nil if a daemon of our own can be started.
func canStartDaemon() error {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return &noDaemon{"systemd runs here, and starts the machine's", "run: sudo systemctl start docker"}
	}
	if os.Getuid() != 0 {
		return &noDaemon{"only root can start one", "start Docker, or Podman, so that this user may use it; or run as root"}
	}
	for _, program := range []string{"dockerd", "docker", "runc", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return &noDaemon{err.Error(), "run: make kind"}
		}
	}
	if _, err := os.Stat(filepath.Join(directory(), "runc")); err != nil {
		return &noDaemon{err.Error(), "run: make kind"}
	}
	try := exec.Command("/bin/true")
	try.SysProcAttr = namespaces()
	if err := try.Run(); err != nil {
		return &noDaemon{fmt.Sprintf("namespaces for mounts, processes and a network can't be made: %v", err), "start this container, or virtual machine, with CAP_SYS_ADMIN (docker run --privileged)"}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &disk); err != nil {
		return &noDaemon{fmt.Sprintf("look at the disk of %s: %v", os.TempDir(), err), "set TMPDIR to a directory"}
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return &noDaemon{fmt.Sprintf("%s has %d MB free, of %d that it needs", os.TempDir(), free>>20, room>>20), "set TMPDIR to a directory with more room"}
	}
	return nil
}
