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
	fmt.Println(evidence.ConsoleGreeting)
	g, err := setUp()
	if err != nil {
		return err
	}
	beats := time.Tick(g.config.Heartbeat)
	g.out.beat()
	for {
		select {
		case <-beats:
			g.out.beat()
		case <-g.feeding:
			g.complain(g.feed())
		case command := <-g.commands:
			g.obey(command)
		case <-g.nodeReady:
			g.nodeReady = nil
			if g.kubeletWanted && !g.shuttingDown {
				g.startReal(evidence.KubeletStarted)
			}
		case <-g.restarts:
			if g.kubelet == nil && g.kubeletWanted && !g.shuttingDown {
				g.startReal(evidence.KubeletAgain)
			}
		case s := <-g.theirs.ready:
			g.theirs.started(s)
		case s := <-g.theirs.waiting:
			g.theirs.waits(s)
		case s := <-g.theirs.gone:
			g.theirs.ended(s.pid)
		case d := <-g.heard:
			g.complain(g.others.take(d, g.out))
		case <-g.button:
			g.shutDown()
		case <-g.slept:
			g.slept = nil
		case <-g.children:
			for _, pid := range reap() {
				g.ended(pid)
			}
		}
		if g.isDown() {
			return powerOff(g.out)
		}
	}
}

// guest holds the state of PID 1. Only its goroutine touches it.
type guest struct {
	config   evidence.Config
	port     *os.File
	out      *witness
	commands <-chan evidence.Command
	button   <-chan struct{}
	children chan os.Signal

	theirs *programs
	others *peers // nil without a network
	heard  <-chan datagram
	// feed feeds the watchdog when feeding says so; PID 1 leaves it to others if feeding is nil.
	feed    func() error
	feeding <-chan time.Time

	kubelet       *exec.Cmd       // nil while none runs
	real          *realNode       // nil if the kubelet is this program
	nodeReady     <-chan struct{} // nil once it is known
	restarts      <-chan time.Time
	kubeletWanted bool
	kubeletKilled bool

	ignoreShutdown bool
	shuttingDown   bool
	slow           time.Duration    // how long a shutdown takes at least
	slept          <-chan time.Time // ends that time; nil while no shutdown is under way, and after it
	stopping       <-chan struct{}  // of a real node
	offset         time.Duration    // of the clock
}

// setUp makes a guest of the configuration, and starts the programs and the kubelet on it. An
// error means that there can be no evidence; anything else that fails is reported as trouble.
func setUp() (*guest, error) {
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
	g := &guest{config: config, port: port, out: out, theirs: newPrograms(config.Programs, out), kubeletWanted: true}
	g.openWatchdog()
	if config.Network != nil {
		g.complain(configureNetwork(config.Network))
		if g.others, err = newPeers(config.Name, config.Network); err == nil {
			g.heard = g.others.heard
		}
		g.complain(err)
	}
	g.button, err = powerButton()
	g.complain(err)
	g.commands = readCommands(port)
	g.children = make(chan os.Signal, 1)
	signal.Notify(g.children, unix.SIGCHLD)
	switch {
	case config.Kubelet == nil:
	case config.Kubelet.Real:
		g.real = startNode(config, g.theirs, out)
		g.nodeReady = g.real.ready
	default:
		g.spawnKubelet()
	}
	g.theirs.startAll(g.complain)
	return g, nil
}

// openWatchdog opens the watchdog and feeds it, unless there is none or an agent feeds it.
func (g *guest) openWatchdog() {
	if g.config.Watchdog <= 0 || g.theirs.feed() || g.config.Kubelet != nil && g.config.Kubelet.PodsFeed {
		return
	}
	dog, err := openWatchdog()
	if err != nil {
		g.complain(err)
		return
	}
	g.feed, g.feeding = dog.feed, time.Tick(g.config.Watchdog/4)
	g.complain(g.feed())
}

func (g *guest) complain(err error) {
	if err != nil {
		g.out.say(evidence.Trouble, err.Error())
	}
}

// spawnKubelet starts this program as the kubelet.
func (g *guest) spawnKubelet(args ...string) {
	var err error
	g.kubelet, err = spawn(g.port, append([]string{"kubelet"}, args...)...)
	g.complain(err)
}

// startReal starts a real kubelet, of which PID 1 says what the small one says itself.
func (g *guest) startReal(said evidence.Kind) {
	g.out.say(said, "")
	var err error
	g.kubelet, err = g.real.kubelet()
	g.complain(err)
}

// obey carries out a command of the host.
func (g *guest) obey(command evidence.Command) {
	g.out.say(evidence.Accepted, string(command))
	word, argument, _ := strings.Cut(string(command), " ")
	switch verb := evidence.Command(word); verb {
	case evidence.IgnoreShutdown:
		g.ignoreShutdown = true
	case evidence.ObeyShutdown:
		var err error
		g.ignoreShutdown = false
		g.slow, err = time.ParseDuration(argument)
		g.complain(err)
	case evidence.StopKubelet:
		g.kubeletWanted = false
		if g.kubelet != nil {
			g.kubeletKilled = true
			g.complain(g.kubelet.Process.Kill())
		}
	case evidence.StartKubelet:
		g.kubeletWanted = true
		switch {
		case g.config.Kubelet == nil || g.shuttingDown:
		case g.kubelet != nil: // it is not gone yet, if it was killed
		case g.real == nil:
			g.spawnKubelet("again")
		case g.nodeReady == nil:
			g.startReal(evidence.KubeletAgain)
		}
	case evidence.StopFeeding:
		g.feeding = nil
		g.complain(g.theirs.starve())
	case evidence.StartProgram, evidence.KillProgram, evidence.PauseProgram, evidence.ResumeProgram:
		g.complain(g.theirs.do(verb, argument))
	case evidence.KillPod, evidence.StartPod, evidence.PausePod, evidence.ResumePod:
		if g.real != nil {
			g.complain(g.real.pods.do(verb, argument))
		}
	case evidence.Ask:
		if g.others != nil {
			g.complain(g.others.ask(argument))
		}
	case evidence.FillDisk, evidence.FreeDisk:
		if g.real != nil {
			g.complain(g.real.disk(verb))
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

// shutDown begins a shutdown when the power button is pressed.
func (g *guest) shutDown() {
	switch {
	case g.ignoreShutdown:
		g.out.say(evidence.ShutdownIgnored, "")
	case !g.shuttingDown:
		g.shuttingDown, g.theirs.ending = true, true
		g.out.say(evidence.ShuttingDown, "")
		g.slept = time.After(g.slow)
		if g.kubelet != nil {
			g.complain(g.kubelet.Process.Signal(unix.SIGTERM))
		}
	}
}

// ended takes note of the end of a child. A kubelet that should run comes back.
func (g *guest) ended(pid int) {
	g.theirs.ended(pid)
	if g.kubelet == nil || pid != g.kubelet.Process.Pid {
		return
	}
	g.kubelet = nil
	g.out.say(evidence.KubeletStopped, "")
	switch {
	case g.real != nil:
		g.restarts = time.After(restartDelay)
	case g.kubeletKilled && g.kubeletWanted && !g.shuttingDown: // StartKubelet came before its end
		g.spawnKubelet("again")
	}
	g.kubeletKilled = false
}

// isDown reports whether a shutdown is over. A real node's last step is to stop its containers; the
// next heartbeat looks again.
func (g *guest) isDown() bool {
	if !g.shuttingDown || g.kubelet != nil || g.slept != nil {
		return false
	}
	if g.real == nil {
		return true
	}
	if g.stopping == nil {
		g.stopping = g.real.stop(g.complain)
	}
	return closed(g.stopping)
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
