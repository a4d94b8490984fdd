package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// realNode is a real node in this guest: the root file system on its disk, in which containerd and
// the real kubelet run. PID 1 itself stays outside, so that whatever happens to the disk it goes on
// witnessing.
type realNode struct {
	config   evidence.Config
	programs *programs
	out      *witness
	journal  *os.File
	pods     *pods
	// ready is closed when a kubelet can be started. Trouble on the way is said.
	ready chan struct{}
	// containerd is its process once ready.
	containerd *exec.Cmd
}

const (
	// nodeRoot is where PID 1 has the file system of the node.
	nodeRoot = "/node"
	nodeDisk = "/dev/vda"
	// containerdSocket is in that file system, as the images are that the first boot imports. That
	// of programs is large.
	containerdSocket = "/run/containerd/containerd.sock"
	imageArchive     = "/var/lib/fencelab/images.tar"
	programArchive   = "/var/lib/fencelab/agent.tar"
	// podsGroup is the cgroup of all Pods.
	podsGroup = nodeRoot + "/sys/fs/cgroup/kubepods"
	// killPoll is how often it is looked at while they end.
	killPoll = 50 * time.Millisecond
)

// startNode begins to bring the node up, which takes seconds.
func startNode(config evidence.Config, theirs *programs, out *witness) *realNode {
	n := &realNode{config: config, programs: theirs, out: out, pods: newPods(out), ready: make(chan struct{})}
	go func() {
		if err := n.bringUp(); err != nil {
			out.say(evidence.Trouble, err.Error())
			return
		}
		close(n.ready)
	}()
	return n
}

func (n *realNode) bringUp() (err error) {
	if n.journal, err = openPort(evidence.JournalName); err != nil {
		return err
	}
	if err := mountNode(); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.witnessPods(); err != nil {
		return err
	}
	if n.config.Kubelet.Storage != "" {
		if err := n.reachStorage(); err != nil {
			return err
		}
	}
	n.containerd = n.command("containerd", "--config", "/etc/containerd/config.toml")
	if err := n.containerd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	for socket := nodeRoot + containerdSocket; ; time.Sleep(devicePoll) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
	}
	return n.importImages()
}

// mountNode mounts the disk and what a root file system has mounted in it.
func mountNode() error {
	if err := os.MkdirAll(nodeRoot, 0o755); err != nil {
		return fmt.Errorf("mount the node's disk: %w", err)
	}
	for deadline := time.Now().Add(deviceTimeout); ; time.Sleep(devicePoll) {
		_, err := os.Stat(nodeDisk)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("mount the node's disk: %w", err)
		}
	}
	for _, m := range []struct {
		fs, source, dir string
		flags           uintptr
		data            string
	}{
		{"ext4", nodeDisk, "", unix.MS_NOATIME, ""},
		{"devtmpfs", "devtmpfs", "/dev", 0, ""},
		{"devpts", "devpts", "/dev/pts", 0, ""},
		{"tmpfs", "tmpfs", "/dev/shm", 0, ""},
		{"proc", "proc", "/proc", 0, ""},
		{"sysfs", "sysfs", "/sys", 0, ""},
		{"cgroup2", "cgroup2", "/sys/fs/cgroup", 0, ""},
		{"tmpfs", "tmpfs", "/run", 0, "mode=755"},
		{"tmpfs", "tmpfs", "/tmp", 0, ""},
	} {
		dir := nodeRoot + m.dir
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("mount %s of the node: %w", m.dir, err)
		}
		if err := unix.Mount(m.source, dir, m.fs, m.flags, m.data); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s on %s: %w", m.source, dir, err)
		}
	}
	// What is mounted for a container is to be seen by all.
	if err := unix.Mount("", nodeRoot, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts of the node: %w", err)
	}
	controllers, err := os.ReadFile(nodeRoot + "/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return fmt.Errorf("enable cgroups: %w", err)
	}
	for name := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(nodeRoot+"/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+name), 0); err != nil {
			return fmt.Errorf("enable the cgroup controller %s: %w", name, err)
		}
	}
	return nil
}

// command is a program of the node, which logs to the journal.
func (n *realNode) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/"+name, args...)
	cmd.Err = nil // it is not looked for in our own file system
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Stdout, cmd.Stderr = n.journal, n.journal
	cmd.SysProcAttr = &unix.SysProcAttr{Chroot: nodeRoot}
	return cmd
}

// importImages gives containerd the images that are on the disk, once in the disk's life: then
// their archive is gone. An image counts as unpacked only when its files are on the disk: a host
// that loses its power soon after would have empty ones.
func (n *realNode) importImages() error {
	archives := []string{imageArchive}
	if len(n.config.Programs) > 0 {
		archives = append(archives, programArchive)
	}
	var script strings.Builder
	for _, archive := range archives {
		if _, err := os.Stat(nodeRoot + archive); err == nil {
			fmt.Fprintf(&script, "ctr --namespace k8s.io images import --local --sync-fs %s && rm %[1]s\n", archive)
		}
	}
	if err := n.command("busybox", "sh", "-c", script.String()).Start(); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	return nil
}

// kubelet is the real one, which finds its configuration on the disk.
func (n *realNode) kubelet() (*exec.Cmd, error) {
	k := n.config.Kubelet
	args := []string{
		"--config=" + kubeletConfigPath, "--bootstrap-kubeconfig=" + bootstrapPath, "--kubeconfig=/var/lib/kubelet/kubeconfig",
		"--hostname-override=" + k.Node, "--node-ip=" + n.config.Network.Address.Addr().String(),
	}
	if len(k.Labels) > 0 {
		args = append(args, "--node-labels="+pairs(k.Labels))
	}
	cmd := n.command("kubelet", args...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the kubelet: %w", err)
	}
	return cmd, nil
}

// stop ends all Pods, first with good will, and then what else writes to the disk. It closes what
// it returns when that is done.
func (n *realNode) stop(complain func(error)) <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		complain(n.endPods())
		select {
		case <-n.ready:
			complain(n.containerd.Process.Kill())
		default:
		}
		unix.Sync()
	}()
	return stopped
}

func (n *realNode) endPods() error {
	for _, pid := range running(podsGroup) {
		unix.Kill(pid, unix.SIGTERM)
	}
	for end := time.Now().Add(n.config.Kubelet.Grace); len(running(podsGroup)) > 0; time.Sleep(killPoll) {
		if time.Now().Before(end) {
			continue
		}
		if err := os.WriteFile(podsGroup+"/cgroup.kill", []byte("1"), 0); err != nil {
			return fmt.Errorf("kill the Pods: %w", err)
		}
	}
	return nil
}

// running are the processes of a cgroup, and of all within it.
func running(group string) (pids []int) {
	filepath.WalkDir(group, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil // a cgroup may go meanwhile
		}
		list, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// witnessPods listens for the workloads and programs in Pods, which write their evidence to a
// socket: the port itself can only be opened once. What workloads write is passed on as it is. That
// one is gone PID 1 says itself, when it is, by the process that connected and not by its
// connection.
func (n *realNode) witnessPods() error {
	path := nodeRoot + evidence.SocketPath
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("listen to Pods: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen to Pods: %w", err)
	}
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				n.out.say(evidence.Trouble, fmt.Sprintf("listen to Pods: %v", err))
				return
			}
			go func() {
				if err := n.witness(conn); err != nil {
					n.out.say(evidence.Trouble, fmt.Sprintf("listen to a Pod: %v", err))
				}
			}()
		}
	}()
	return nil
}

func (n *realNode) witness(conn *net.UnixConn) error {
	defer conn.Close()
	process, pid, err := peer(conn)
	if err != nil {
		return err
	}
	defer unix.Close(int(process))
	relayed := &relay{out: n.out, said: make(map[string]string), programs: n.programs, by: started{process: process, pid: pid, allow: func() {
		conn.Write([]byte{0}) // it may have ended by now
	}}}
	_, err = io.Copy(relayed, conn)
	if waitErr := process.awaitEnd(); waitErr != nil {
		return errors.Join(err, waitErr)
	}
	relayed.end()
	if relayed.by.program != "" {
		n.programs.gone <- relayed.by
	}
	return err
}

// pidfd is a process that isn't PID 1's child: pidfd_open(2).
type pidfd int

// Signal implements process.
func (p pidfd) Signal(s os.Signal) error {
	return unix.PidfdSendSignal(int(p), s.(unix.Signal), nil, 0)
}

// peer is the process at the other end of a connection. It is alive, as the connection shows, so
// that its number is its own.
func peer(conn *net.UnixConn) (p pidfd, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var credentials *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(failed, err); err != nil {
		return 0, 0, fmt.Errorf("find out whose it is: %w", err)
	}
	fd, err := unix.PidfdOpen(int(credentials.Pid), 0)
	return pidfd(fd), int(credentials.Pid), err
}

// awaitEnd returns when the process is gone.
func (p pidfd) awaitEnd() error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return err
		}
	}
}

// relay passes on what a workload in a Pod writes, line by line. What a program says is for PID 1.
type relay struct {
	out      *witness
	programs *programs
	by       started
	rest     []byte
	// said are the workloads that have said that they run, and their Pods.
	said map[string]string
}

// Write implements io.Writer.
func (r *relay) Write(data []byte) (int, error) {
	r.rest = append(r.rest, data...)
	for {
		text, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		var line evidence.Line
		if err := json.Unmarshal(text, &line); err != nil {
			return 0, fmt.Errorf("read %.100q: %w", text, err)
		}
		r.rest = rest
		switch line.Kind {
		case evidence.ProgramWaits:
			r.by.program = line.Process
			r.programs.waiting <- r.by
			continue
		case evidence.ProgramStarted: // PID 1 says so itself
			r.programs.ready <- r.by
			continue
		case evidence.WorkloadStarted:
			r.said[line.Process] = line.Detail
		}
		if _, err := r.out.port.Write(append(bytes.Clone(text), '\n')); err != nil {
			return 0, fmt.Errorf("pass on what a Pod says: %w", err)
		}
	}
}

// end says that the process is gone, with all that it was.
func (r *relay) end() {
	for name, pod := range r.said {
		r.out.write(evidence.Line{Kind: evidence.WorkloadStopped, Process: name, Detail: pod})
	}
}
