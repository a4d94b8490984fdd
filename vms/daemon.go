//go:build cgo && libvirt_dlopen

package vms

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/vms/keeper"
)

const (
	daemon = "libvirtd"
	// daemonTimeout bounds its start, a second on an idle machine.
	daemonTimeout = 60 * time.Second
	daemonConf    = `auth_unix_rw = "none"
log_outputs = "3:stderr"
`
	// ordinary is how a daemon that root starts sees itself: root's would be the machine's libvirt,
	// with its directories.
	ordinary = 1000
	// config has the sockets of QEMU's monitors deep below it, and a socket's path is limited to
	// 108 bytes.
	config = "c"
)

// daemonLayout is that of a session's daemon with its directories for the user below the root. It
// takes what the embedded driver has learned about QEMU for out of date, and the other way round,
// so each keeps its own.
func daemonLayout(cache string) layout {
	return layout{
		conf: config + "/libvirt", known: "cache/libvirt/qemu/cache/capabilities", pids: "run/libvirt/qemu/run",
		cache: filepath.Join(cache, "daemon/capabilities"),
	}
}

// startDaemon starts a daemon and connects to it. The keeper ends it, since its environment has a
// mark, as that of its QEMU has.
func (h *hypervisor) startDaemon(root string) (uri string, err error) {
	path, err := exec.LookPath(daemon)
	if err != nil {
		return "", fmt.Errorf("find libvirt's daemon: %w; run vms/assets.sh", err)
	}
	if err := os.WriteFile(filepath.Join(root, config, "libvirt/libvirtd.conf"), []byte(daemonConf), 0o600); err != nil {
		return "", fmt.Errorf("prepare libvirt's directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(root, "run"), 0o700); err != nil {
		return "", fmt.Errorf("prepare libvirt's directory: %w", err)
	}
	log, err := os.Create(filepath.Join(h.dir, "libvirtd.log"))
	if err != nil {
		return "", fmt.Errorf("start libvirt's daemon: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(path)
	cmd.Args[0] = fmt.Sprintf("%s[%s]", daemon, keeper.Name()) // whose it is, for who lists the machine's processes
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = h.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "XDG_RUNTIME_DIR=" + root + "/run",
		"XDG_CONFIG_HOME=" + filepath.Join(root, config), "XDG_CACHE_HOME=" + root + "/cache", h.keeper.Mark()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	needs := ""
	if os.Getuid() == 0 {
		needs = "; that of root is started in a user namespace, which this machine has to allow (user.max_user_namespaces)"
		// In a user namespace it is an ordinary user, who owns what is ours.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: 0, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: ordinary, Gid: ordinary, NoSetGroups: true}
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start libvirt's daemon: %w%s", err, needs)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	uri = "qemu+unix:///session?socket=" + filepath.Join(root, "run/libvirt/libvirt-sock")
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(20 * time.Millisecond) {
		if h.conn, err = libvirt.NewConnect(uri); err == nil {
			return uri, nil
		}
		select {
		case how := <-ended:
			return "", fmt.Errorf("start libvirt's daemon: it ended (%v):\n%s", how, said(log.Name()))
		default:
		}
		if time.Now().After(deadline) {
			return "", errors.Join(fmt.Errorf("start libvirt's daemon: it accepts no connections within %v: %w; it said:\n%s", daemonTimeout, err, said(log.Name())), cmd.Process.Kill())
		}
	}
}

// said is the end of what a log has.
func said(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-1000):]))
}
