package main

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// runWorkload is one exclusive workload: two of the same name that beat at the same time are a split brain.
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

// workloads are the kubelet's children, by the UID of their Pods. Only the kubelet's main goroutine uses it.
type workloads struct {
	port   *os.File
	out    *witness
	config evidence.Config
	byPod  map[string]*workload
}

type workload struct {
	name string
	cmd  *exec.Cmd
	gone chan struct{} // closed once the process is reaped and the host was told
}

func newWorkloads(port *os.File, out *witness, config evidence.Config) *workloads {
	return &workloads{port: port, out: out, config: config, byPod: map[string]*workload{}}
}

func (ws *workloads) running() []string { return slices.Sorted(maps.Keys(ws.byPod)) }

// start starts the workload unless it has been started already, and tells whether it did. A workload that ended by itself
// isn't started again.
func (ws *workloads) start(uid, name string) (bool, error) {
	if ws.byPod[uid] != nil {
		return false, nil
	}
	cmd, err := spawn(ws.port, "workload", name, uid, ws.config.Heartbeat.String())
	if err != nil {
		return false, err
	}
	w := &workload{name: name, cmd: cmd, gone: make(chan struct{})}
	ws.byPod[uid] = w
	go func() {
		cmd.Wait()
		ws.out.write(evidence.Line{Kind: evidence.WorkloadStopped, Process: name, Detail: uid})
		close(w.gone)
	}()
	return true, nil
}

// stop returns once the process is gone and the host was told so.
func (ws *workloads) stop(uid string) {
	w := ws.byPod[uid]
	if w == nil {
		return
	}
	w.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-w.gone:
	case <-time.After(ws.config.Kubelet.Grace):
		w.cmd.Process.Kill()
		<-w.gone
	}
	delete(ws.byPod, uid)
}

func (ws *workloads) stopAll() {
	for _, uid := range ws.running() {
		ws.stop(uid)
	}
}
