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
//
// It is long because all of that is one select over what its set-up has made.
func runInit() error {
	fmt.Println(evidence.ConsoleGreeting)
	if err := mountAll(); err != nil {
		return err
	}
	config, err := readConfig()
	if err != nil {
		return err
	}
	if err := loadModules(config); err != nil {
		return err
	}
	port, err := openPort(evidence.PortName)
	if err != nil {
		return err
	}
	out, err := newWitness(port, "")
	if err != nil {
		return err
	}
	out.say(evidence.Boot, "")
	complain := func(err error) {
		if err != nil {
			out.say(evidence.Trouble, err.Error())
		}
	}

	var feed func() error
	feeding := make(<-chan time.Time)
	theirs := newPrograms(config.Programs, out)
	if config.Watchdog > 0 && !theirs.feed() && (config.Kubelet == nil || !config.Kubelet.PodsFeed) {
		dog, err := openWatchdog()
		complain(err)
		if err == nil {
			feed, feeding = dog.feed, time.Tick(config.Watchdog/4)
			complain(feed())
		}
	}
	var others *peers
	var heard <-chan datagram
	if config.Network != nil {
		complain(configureNetwork(config.Network))
		others, err = newPeers(config.Name, config.Network)
		complain(err)
		if err == nil {
			heard = others.heard
		}
	}
	button, err := powerButton()
	complain(err)
	commands := readCommands(port)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	var kubelet *exec.Cmd
	var real *realNode
	var nodeReady <-chan struct{} // nil when it is known
	// PID 1 says of a real kubelet what the small one says itself.
	startReal := func(said evidence.Kind) {
		out.say(said, "")
		kubelet, err = real.kubelet()
		complain(err)
	}
	switch {
	case config.Kubelet == nil:
	case config.Kubelet.Real:
		real = startNode(config, theirs, out)
		nodeReady = real.ready
	default:
		kubelet, err = spawn(port, "kubelet")
		complain(err)
	}

	theirs.startAll(complain)

	ignoreShutdown, shuttingDown, kubeletWanted, kubeletKilled := false, false, true, false
	var stopping <-chan struct{} // of a real node
	var restarts <-chan time.Time
	var slow time.Duration     // how long a shutdown takes at least
	var slept <-chan time.Time // ends that time; nil while no shutdown is under way, and after it
	var offset time.Duration   // of the clock
	beats := time.Tick(config.Heartbeat)
	out.beat()
	for {
		select {
		case <-beats:
			out.beat()
		case <-feeding:
			complain(feed())
		case command := <-commands:
			out.say(evidence.Accepted, string(command))
			word, argument, _ := strings.Cut(string(command), " ")
			switch evidence.Command(word) {
			case evidence.IgnoreShutdown:
				ignoreShutdown = true
			case evidence.ObeyShutdown:
				ignoreShutdown = false
				slow, err = time.ParseDuration(argument)
				complain(err)
			case evidence.StopKubelet:
				kubeletWanted = false
				if kubelet != nil {
					kubeletKilled = true
					complain(kubelet.Process.Kill())
				}
			case evidence.StartKubelet:
				kubeletWanted = true
				switch {
				case config.Kubelet == nil || shuttingDown:
				case kubelet != nil: // it is not gone yet, if it was killed
				case real == nil:
					kubelet, err = spawn(port, "kubelet", "again")
					complain(err)
				case nodeReady == nil:
					startReal(evidence.KubeletAgain)
				}
			case evidence.StopFeeding:
				feeding = nil
				complain(theirs.starve())
			case evidence.StartProgram, evidence.KillProgram, evidence.PauseProgram, evidence.ResumeProgram:
				complain(theirs.do(evidence.Command(word), argument))
			case evidence.KillPod, evidence.StartPod, evidence.PausePod, evidence.ResumePod:
				if real != nil {
					complain(real.pods.do(evidence.Command(word), argument))
				}
			case evidence.Ask:
				if others != nil {
					complain(others.ask(argument))
				}
			case evidence.FillDisk, evidence.FreeDisk:
				if real != nil {
					complain(real.disk(evidence.Command(word)))
				}
			case evidence.SetClock:
				by, err := time.ParseDuration(argument)
				complain(errors.Join(err, setClock(by-offset)))
				offset = by
			case evidence.Panic:
				complain(panicNow())
			case evidence.Hang:
				unix.Kill(-1, unix.SIGSTOP)
				select {} // PID 1 can't be stopped by a signal, so it stops itself
			}
		case <-nodeReady:
			nodeReady = nil
			if kubeletWanted && !shuttingDown {
				startReal(evidence.KubeletStarted)
			}
		case <-restarts:
			if kubelet == nil && kubeletWanted && !shuttingDown {
				startReal(evidence.KubeletAgain)
			}
		case s := <-theirs.ready:
			theirs.started(s)
		case s := <-theirs.waiting:
			theirs.waits(s)
		case s := <-theirs.gone:
			theirs.ended(s.pid)
		case d := <-heard:
			complain(others.take(d, out))
		case <-button:
			switch {
			case ignoreShutdown:
				out.say(evidence.ShutdownIgnored, "")
			case !shuttingDown:
				shuttingDown, theirs.ending = true, true
				out.say(evidence.ShuttingDown, "")
				slept = time.After(slow)
				if kubelet != nil {
					complain(kubelet.Process.Signal(unix.SIGTERM))
				}
			}
		case <-slept:
			slept = nil
		case <-children:
			for _, pid := range reap() {
				theirs.ended(pid)
				if kubelet != nil && pid == kubelet.Process.Pid {
					kubelet = nil
					out.say(evidence.KubeletStopped, "")
					switch {
					case real != nil:
						restarts = time.After(restartDelay)
					case kubeletKilled && kubeletWanted && !shuttingDown: // StartKubelet came before its end
						kubelet, err = spawn(port, "kubelet", "again")
						complain(err)
					}
					kubeletKilled = false
				}
			}
		}
		if shuttingDown && kubelet == nil && slept == nil {
			if real != nil && stopping == nil {
				stopping = real.stop(complain)
			}
			if real != nil && !closed(stopping) {
				continue // the next heartbeat looks again
			}
			return powerOff(out)
		}
	}
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
