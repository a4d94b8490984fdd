package kind

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/vms/keeper"
)

// daemonTimeout bounds the daemon's start: 2 s on two idle cores.
const daemonTimeout = 60 * time.Second

// daemon is a Docker of our own. It has a network, mounts and processes of its own, so that the
// machine's firewall, bridges and mounts stay as they are, and all of its containers end with it.
type daemon struct {
	process *child.Process
}

// daemonScript is the first process in the namespaces.
//
//   - Sockets of containerd's shims have a fixed place below /run.
//   - kind mounts /lib/modules, and Docker would make it where it is missing.
const daemonScript = `
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
if [ ! -d /lib/modules ]; then
	mkdir lib work
	mount -t overlay overlay -o "lowerdir=/usr/lib,upperdir=$PWD/lib,workdir=$PWD/work" /usr/lib
fi
ip link set lo up
exec dockerd --data-root="$PWD/data" --exec-root="$PWD/exec" --pidfile="$PWD/pid" --host="unix://$PWD/socket" --group=0 --bridge=none \
	--cgroup-parent="$CGROUP" --add-runtime="fencelab=$RUNC" --default-runtime=fencelab`

// startDaemon starts one in a directory.
func startDaemon(ctx context.Context, k *keeper.Keeper, dir string) (*engine, error) {
	cgroup, err := k.Cgroup()
	if err != nil {
		return nil, err
	}
	favour(cgroup)
	real, err := exec.LookPath("runc")
	if err != nil {
		return nil, fmt.Errorf("start a Docker daemon: %w", err)
	}
	runc, err := filepath.Abs(filepath.Join(directory(), "runc"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-euc", daemonScript)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "CGROUP=" + cgroup, "RUNC=" + runc, "FENCELAB_RUNC=" + real, k.Mark()}
	cmd.SysProcAttr = namespaces()
	process, err := child.Start("dockerd", cmd, filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return nil, fmt.Errorf("start a Docker daemon: %w", err)
	}
	socket := filepath.Join(dir, "socket")
	ctx, cancel := machine.WithBudget(ctx, daemonTimeout)
	defer cancel()
	asking := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	if err := child.AwaitAnswer(ctx, asking, "http://docker/_ping", process); err != nil {
		return nil, fmt.Errorf("start a Docker daemon: %w", err)
	}
	e := *engines[0]
	e.title, e.env, e.own = "our Docker", []string{"DOCKER_HOST=unix://" + socket}, &daemon{process}
	return &e, nil
}

// favour has what runs in a cgroup get the time of the processors that this process's priority is
// worth. The kernel divides its time among cgroups, and sessions outside of any (sched(7),
// autogroup), before it does among their processes, and hosts have that priority as sessions:
// beside two real nodes that boot, a control plane without it answered after seconds. Where this
// process is in a cgroup itself, they all share that one's time. A failure only makes the cluster
// slower on a busy machine.
func favour(cgroup string) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !inNone(string(groups)) {
		return
	}
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	nice := 20 - raw // the system call adds what it may not return
	for file, value := range map[string]int{
		filepath.Join("/sys/fs/cgroup/cpu", cgroup, "cpu.shares"):  int(defaultShares * math.Pow(perNice, float64(-nice))),
		filepath.Join("/sys/fs/cgroup", cgroup, "cpu.weight.nice"): nice, // cgroups of the second version
	} {
		group := filepath.Dir(file)
		if _, err := os.Stat(filepath.Join(filepath.Dir(group), "cgroup.procs")); err == nil { // or it isn't one that has groups
			_ = os.Mkdir(group, 0o755)
			_ = os.WriteFile(file, strconv.AppendInt(nil, int64(value), 10), 0)
		}
	}
}

// inNone reports whether a process of which /proc/self/cgroup says this is in no cgroup that has a
// share of the processors. The line of the second version has no controllers; where the first has
// this one, it doesn't count.
func inNone(groups string) bool {
	second := ""
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case slices.Contains(strings.Split(controllers, ","), "cpu"):
			return path == "/"
		case controllers == "":
			second = path
		}
	}
	return second == "/"
}

// A nice value less by one is worth perNice times the share, as sched(7) has it; a cgroup and a
// nice value of 0 have the same.
const defaultShares, perNice = 1024, 1.25

// dial connects to an address on the loopback interface of the daemon's network. A socket belongs
// to the network in which it is made, so only that is done there.
func (d *daemon) dial(address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	made := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which is in another network, ends with this function
		socket, err := d.socket()
		if err != nil {
			failed <- fmt.Errorf("open a socket in the private Docker's network: %w", err)
			return
		}
		made <- socket
	}()
	var file *os.File
	select {
	case err := <-failed:
		return nil, err
	case socket := <-made:
		file = os.NewFile(uintptr(socket), address)
	}
	defer file.Close()
	if err := unix.Connect(int(file.Fd()), &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: os.NewSyscallError("connect", err)}
	}
	return net.FileConn(file)
}
