package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

const (
	deviceTimeout = 20 * time.Second
	// restartDelay is how long a real kubelet is away that has ended by itself, as one of systemd's
	// would be.
	restartDelay = time.Second
	devicePoll   = 5 * time.Millisecond
)

// runInit is PID 1. After the set-up a single goroutine does everything, so that freezing it
// freezes all of user space's heart: the feeder of the watchdog, the reaction to the power button
// and the heartbeats.
func runInit() error {
	g, err := bootGuest()
	if err != nil {
		return err
	}
	g.openWatchdog()
	g.joinNetwork()
	button, err := powerButton()
	g.complain(err)
	commands := readCommands(g.port)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	g.startKubelet()
	g.programs.startAll(g.complain)
	beats := time.Tick(g.config.Heartbeat)
	g.out.beat()
	for {
		select {
		case <-beats:
			g.out.beat()
		case <-g.feeding:
			g.complain(g.feed())
		case command := <-commands:
			g.obey(command)
		case <-g.kubelet.nodeReady:
			g.nodeIsReady()
		case <-g.kubelet.restarts:
			g.restartKubelet()
		case s := <-g.programs.ready:
			g.programs.started(s)
		case s := <-g.programs.waiting:
			g.programs.waits(s)
		case s := <-g.programs.gone:
			g.programs.ended(s.pid)
		case d := <-g.heard:
			g.complain(g.peers.take(d, g.out))
		case <-button:
			g.shutDown()
		case <-g.shutdown.slept:
			g.shutdown.slept = nil
		case <-children:
			for _, pid := range reap() {
				g.programs.ended(pid)
				g.kubeletEnded(pid)
			}
		}
		if g.isDown() {
			return powerOff(g.out)
		}
	}
}

// guest is the state of PID 1. Only its goroutine changes it.
type guest struct {
	config   evidence.Config
	port     *os.File
	out      *witness
	programs *programs
	// feed feeds the watchdog whenever feeding ticks. feeding is nil while PID 1 does not feed it.
	feed    func() error
	feeding <-chan time.Time
	// peers and heard are nil without a network.
	peers *peers
	heard <-chan datagram
	// offset is that of the clock.
	offset   time.Duration
	kubelet  kubeletProcess
	shutdown shutdown
}

// kubeletProcess is the kubelet of a guest, small or real.
type kubeletProcess struct {
	// cmd is the running one.
	cmd *exec.Cmd
	// node runs a real one; nil for the small one.
	node *realNode
	// nodeReady is nil as soon as it is known that the node is ready for a kubelet.
	nodeReady <-chan struct{}
	restarts  <-chan time.Time
	// unwanted says that it must not run, and killed that it was killed for that.
	unwanted, killed bool
}

// shutdown is the answer of the guest to the power button.
type shutdown struct {
	ignored, begun bool
	// slow is how long it takes at least, and slept ends that time.
	slow  time.Duration
	slept <-chan time.Time
	// stopped is closed as soon as a real node has stopped; nil until it begins to.
	stopped <-chan struct{}
}

// bootGuest sets up what the guest can't report anything without.
func bootGuest() (*guest, error) {
	fmt.Println(evidence.ConsoleGreeting)
	if err := mountAll(); err != nil {
		return nil, err
	}
	config, err := readConfig()
	if err != nil {
		return nil, err
	}
	if err := loadModules(config); err != nil {
		return nil, err
	}
	port, err := openPort(evidence.PortName)
	if err != nil {
		return nil, err
	}
	out, err := newWitness(port, "")
	if err != nil {
		return nil, err
	}
	out.say(evidence.Boot, "")
	return &guest{config: config, port: port, out: out, programs: newPrograms(config.Programs, out)}, nil
}

// complain reports an error, if there is one.
func (g *guest) complain(err error) {
	if err != nil {
		g.out.say(evidence.Trouble, err.Error())
	}
}

// openWatchdog begins to feed the watchdog, unless a program or a Pod does.
func (g *guest) openWatchdog() {
	if g.config.Watchdog <= 0 || g.programs.feed() || g.config.Kubelet != nil && g.config.Kubelet.PodsFeed {
		return
	}
	dog, err := openWatchdog()
	g.complain(err)
	if err == nil {
		g.feed, g.feeding = dog.feed, time.Tick(g.config.Watchdog/4)
		g.complain(g.feed())
	}
}

func (g *guest) joinNetwork() {
	if g.config.Network == nil {
		return
	}
	g.complain(configureNetwork(g.config.Network))
	others, err := newPeers(g.config.Name, g.config.Network)
	g.complain(err)
	if err == nil {
		g.peers, g.heard = others, others.heard
	}
}

// startKubelet starts the small kubelet, or the node that a real one needs.
func (g *guest) startKubelet() {
	switch {
	case g.config.Kubelet == nil:
	case g.config.Kubelet.Real:
		g.kubelet.node = startNode(g.config, g.programs, g.out)
		g.kubelet.nodeReady = g.kubelet.node.ready
	default:
		g.spawnKubelet()
	}
}

// spawnKubelet starts the small kubelet, which reports itself that it has started.
func (g *guest) spawnKubelet(again ...string) {
	cmd, err := spawn(g.port, append([]string{"kubelet"}, again...)...)
	g.kubelet.cmd = cmd
	g.complain(err)
}

// startReal starts a real kubelet, and reports for it what the small one reports itself.
func (g *guest) startReal(said evidence.Kind) {
	g.out.say(said, "")
	cmd, err := g.kubelet.node.kubelet()
	g.kubelet.cmd = cmd
	g.complain(err)
}

// wantsKubelet reports whether a kubelet is to run.
func (g *guest) wantsKubelet() bool { return !g.kubelet.unwanted && !g.shutdown.begun }

func (g *guest) nodeIsReady() {
	g.kubelet.nodeReady = nil
	if g.wantsKubelet() {
		g.startReal(evidence.KubeletStarted)
	}
}

func (g *guest) restartKubelet() {
	if g.kubelet.cmd == nil && g.wantsKubelet() {
		g.startReal(evidence.KubeletAgain)
	}
}

// kubeletEnded takes note that a child has ended, if that is the kubelet.
func (g *guest) kubeletEnded(pid int) {
	k := &g.kubelet
	if k.cmd == nil || pid != k.cmd.Process.Pid {
		return
	}
	k.cmd = nil
	g.out.say(evidence.KubeletStopped, "")
	switch {
	case k.node != nil:
		k.restarts = time.After(restartDelay)
	case k.killed && g.wantsKubelet(): // StartKubelet came before its end
		g.spawnKubelet("again")
	}
	k.killed = false
}

// obey does what the host asks for.
func (g *guest) obey(command evidence.Command) {
	g.out.say(evidence.Accepted, string(command))
	word, argument, _ := strings.Cut(string(command), " ")
	switch evidence.Command(word) {
	case evidence.IgnoreShutdown:
		g.shutdown.ignored = true
	case evidence.ObeyShutdown:
		slow, err := time.ParseDuration(argument)
		g.shutdown.ignored, g.shutdown.slow = false, slow
		g.complain(err)
	case evidence.StopKubelet:
		g.forbidKubelet()
	case evidence.StartKubelet:
		g.allowKubelet()
	case evidence.StopFeeding:
		g.feeding = nil
		g.complain(g.programs.starve())
	case evidence.StartProgram, evidence.KillProgram, evidence.PauseProgram, evidence.ResumeProgram:
		g.complain(g.programs.do(evidence.Command(word), argument))
	case evidence.KillPod, evidence.StartPod, evidence.PausePod, evidence.ResumePod:
		if g.kubelet.node != nil {
			g.complain(g.kubelet.node.pods.do(evidence.Command(word), argument))
		}
	case evidence.Ask:
		if g.peers != nil {
			g.complain(g.peers.ask(argument))
		}
	case evidence.FillDisk, evidence.FreeDisk:
		if g.kubelet.node != nil {
			g.complain(g.kubelet.node.disk(evidence.Command(word)))
		}
	case evidence.SetClock:
		by, err := time.ParseDuration(argument)
		g.complain(errors.Join(err, setClock(by-g.offset)))
		g.offset = by
	case evidence.Panic:
		g.complain(panicNow())
	case evidence.Hang:
		unix.Kill(-1, unix.SIGSTOP)
		select {} // PID 1 can't be stopped by a signal, so it stops itself
	}
}

func (g *guest) forbidKubelet() {
	k := &g.kubelet
	k.unwanted = true
	if k.cmd != nil {
		k.killed = true
		g.complain(k.cmd.Process.Kill())
	}
}

func (g *guest) allowKubelet() {
	k := &g.kubelet
	k.unwanted = false
	switch {
	case g.config.Kubelet == nil || g.shutdown.begun:
	case k.cmd != nil: // it is not gone yet, if it was killed
	case k.node == nil:
		g.spawnKubelet("again")
	case k.nodeReady == nil:
		g.startReal(evidence.KubeletAgain)
	}
}

// shutDown begins to shut the guest down, once.
func (g *guest) shutDown() {
	switch {
	case g.shutdown.ignored:
		g.out.say(evidence.ShutdownIgnored, "")
	case !g.shutdown.begun:
		g.shutdown.begun, g.programs.ending = true, true
		g.out.say(evidence.ShuttingDown, "")
		g.shutdown.slept = time.After(g.shutdown.slow)
		if g.kubelet.cmd != nil {
			g.complain(g.kubelet.cmd.Process.Signal(unix.SIGTERM))
		}
	}
}

// isDown reports whether a shutdown has come to its end. It stops a real node first; the next
// heartbeat looks again.
func (g *guest) isDown() bool {
	if !g.shutdown.begun || g.kubelet.cmd != nil || g.shutdown.slept != nil {
		return false
	}
	node := g.kubelet.node
	if node != nil && g.shutdown.stopped == nil {
		g.shutdown.stopped = node.stop(g.complain)
	}
	return node == nil || closed(g.shutdown.stopped)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func readConfig() (evidence.Config, error) {
	var c evidence.Config
	text, err := os.ReadFile(evidence.ConfigPath)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	return c, nil
}

// spawn executes this program in another role, with the port as its fourth descriptor.
func spawn(port *os.File, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{port}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %v: %w", args, err)
	}
	return cmd, nil
}

// reap collects ended children, which PID 1 also inherits from others.
func reap() (ended []int) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return ended
		}
		ended = append(ended, pid)
	}
}

func powerOff(out *witness) error {
	out.say(evidence.Done, "")
	unix.Sync()
	return fmt.Errorf("power off: %w", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func readCommands(port *os.File) <-chan evidence.Command {
	commands := make(chan evidence.Command)
	go func() {
		for lines := bufio.NewScanner(port); lines.Scan(); {
			commands <- evidence.Command(lines.Text())
		}
	}()
	return commands
}
