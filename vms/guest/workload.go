package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// runWorkload is one exclusive workload: two of the same name that beat at the same time are a
// split brain.
func runWorkload(name, pod string, interval time.Duration) error {
	out, err := newWitness(os.NewFile(portFD, "port"), name)
	if err != nil {
		return err
	}
	out.say(evidence.WorkloadStarted, pod)
	for beats := time.Tick(interval); ; <-beats {
		out.beat()
	}
}

// runInPod is the same in a Pod of a real node, where the port is reached through PID 1. It ends
// when it is asked to, as the first process of a container has to see to itself.
func runInPod(name string, interval time.Duration) error {
	conn, err := net.Dial("unix", evidence.SocketPath)
	if err != nil {
		return fmt.Errorf("reach PID 1: %w", err)
	}
	out, err := newWitness(conn, name)
	if err != nil {
		return err
	}
	over := make(chan os.Signal, 1)
	signal.Notify(over, unix.SIGTERM)
	out.say(evidence.WorkloadStarted, os.Getenv(evidence.PodVariable))
	if path := os.Getenv(evidence.VolumeVariable); path != "" {
		volume, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("open the volume: %w", err)
		}
		go writeTo(volume, out.boot, interval)
	}
	for beats := time.Tick(interval); ; {
		select {
		case <-over:
			return nil
		case <-beats:
			out.beat()
		}
	}
}

// writeTo writes the boot and a number to a volume again and again. Storage that is out of reach
// holds a write up, and one that it doesn't take is lost: the workload goes on.
func writeTo(volume *os.File, boot string, interval time.Duration) {
	beats := time.Tick(interval)
	for n := 1; ; n++ {
		_, _ = volume.WriteAt(fmt.Appendf(nil, "%s %d\n", boot, n), 0)
		<-beats
	}
}

// runPause holds the namespaces of a Pod, and reaps what its containers leave.
func runPause() error {
	over := make(chan os.Signal, 1)
	signal.Notify(over, unix.SIGTERM, unix.SIGINT, unix.SIGCHLD)
	for s := range over {
		if s != unix.SIGCHLD {
			return nil
		}
		reap()
	}
	return nil
}

// workloads are the kubelet's children, by the UID of their Pods. Only the kubelet's main goroutine
// uses it.
type workloads struct {
	port   *os.File
	out    *witness
	config evidence.Config
	byPod  map[string]*workload
}

type workload struct {
	name    string
	process *os.Process
	gone    chan struct{} // closed once the process is reaped and the host knows
}

func newWorkloads(port *os.File, out *witness, config evidence.Config) *workloads {
	return &workloads{port: port, out: out, config: config, byPod: map[string]*workload{}}
}

// Running, Start and Stop implement kubelet.Workloads.
func (ws *workloads) Running() []string { return slices.Sorted(maps.Keys(ws.byPod)) }

// Start doesn't start a workload again that ended by itself.
func (ws *workloads) Start(uid, name string) (bool, error) {
	if ws.byPod[uid] != nil {
		return false, nil
	}
	cmd, err := spawn(ws.port, "workload", name, uid, ws.config.Heartbeat.String())
	if err != nil {
		return false, err
	}
	ws.watch(uid, name, cmd.Process, func() { cmd.Wait() })
	return true, nil
}

// watch calls wait, which returns when the process is gone, and then reports the end to the host.
func (ws *workloads) watch(uid, name string, process *os.Process, wait func()) {
	w := &workload{name: name, process: process, gone: make(chan struct{})}
	ws.byPod[uid] = w
	go func() {
		wait()
		ws.out.write(evidence.Line{Kind: evidence.WorkloadStopped, Process: name, Detail: uid})
		close(w.gone)
	}()
}

// adopt takes over the workloads that an earlier kubelet of this boot has left. They
// are PID 1's children now, which reaps them.
func (ws *workloads) adopt() {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		name, uid, ok := workloadOf(data)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if !ok || err != nil {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		ws.watch(uid, name, process, func() {
			for unix.Kill(pid, 0) == nil {
				time.Sleep(adoptedPoll)
			}
		})
	}
}

// adoptedPoll is how often an adopted process is looked at: only a parent can wait.
const adoptedPoll = 20 * time.Millisecond

// workloadOf returns the name and the Pod of a workload's command line.
func workloadOf(cmdline []byte) (name, uid string, ok bool) {
	args := strings.Split(string(cmdline), "\x00")
	if len(args) < 4 || args[1] != "workload" {
		return "", "", false
	}
	return args[2], args[3], true
}

// Stop returns once the process is gone and its end was reported to the host.
func (ws *workloads) Stop(uid string) {
	w := ws.byPod[uid]
	if w == nil {
		return
	}
	w.process.Signal(unix.SIGTERM)
	select {
	case <-w.gone:
	case <-time.After(ws.config.Kubelet.Grace):
		w.process.Kill()
		<-w.gone
	}
	delete(ws.byPod, uid)
}
