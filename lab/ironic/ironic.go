// Package ironic starts a standalone Ironic for tests and labs, as it is in Debian: API and
// conductor in one child process without Keystone, message queue, DHCP or TFTP, with its database
// in a temporary directory, on the loopback interface only. It drives the power of Redfish hosts
// that are enrolled and adopted through its API, and deploys nothing.
//
// It is a fencing backend with a will of its own: its power synchronization loop switches a host
// that it adopted while on, and that somebody else has switched off, on again.
//
// Nothing outlives the program, however it ends: a [keeper.Keeper] removes the directory and kills
// the processes. A program that calls [Launch] therefore calls [keeper.Main] first thing in main or
// TestMain.
package ironic

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/vms/keeper"
)

// readyTimeout bounds the start on a machine that isn't slow: 5 s on two idle cores, 10 s for that
// of another suite.
const readyTimeout = 3 * time.Minute

// Options say how Ironic behaves. The zero value is Ironic's own defaults. Durations are whole
// seconds.
type Options struct {
	// Bin is the directory with ironic and ironic-dbsync; empty means /usr/bin.
	Bin string
	// Image is where the two are instead, along its PATH; nil means on this machine. It runs with
	// our configuration, and not as its entrypoint would have it. A program that uses it calls
	// [container.Main] first thing in main or TestMain.
	Image *container.Image
	// SyncInterval is how often Ironic compares each host's power state with its database and,
	// where they differ, brings the host back to the database's; 0 is 60 s.
	SyncInterval time.Duration
	// PowerTimeout is how long Ironic waits for a host to be on or (by force) off, 2 s or more; 0
	// is 60 s.
	PowerTimeout time.Duration
	// SoftOffTimeout is how long Ironic waits for a guest to shut down, when the request says
	// nothing else. The host is locked meanwhile. 0 is 600 s.
	SoftOffTimeout time.Duration
	// Enrolls enables what baremetal-operator asks for when it enrolls a host: Ironic 24 has all of
	// that. Nodes that ask for nothing are as without it.
	Enrolls bool
}

func (o Options) validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"SyncInterval", o.SyncInterval, time.Second},
		{"PowerTimeout", o.PowerTimeout, 2 * time.Second},
		{"SoftOffTimeout", o.SoftOffTimeout, time.Second},
	} {
		if d.value != 0 && (d.value < d.least || d.value%time.Second != 0) {
			errs = append(errs, fmt.Errorf("%s is %v: use whole seconds, at least %v, or 0 for Ironic's default", d.name, d.value, d.least))
		}
	}
	return errors.Join(errs...)
}

// Ironic is a running Ironic.
type Ironic struct {
	keeper  *keeper.Keeper
	port    *child.Port
	dir     string
	log     string         // what Ironic logs and what it prints
	process *child.Process // nil while it is killed
	options Options

	stop    sync.Once
	stopErr error
}

// Launch starts an Ironic with an empty database and returns once its API answers and its conductor
// is there. The context bounds the start only. If Ironic ends instead, the error holds the last
// lines that it wrote.
func Launch(ctx context.Context, o Options) (*Ironic, error) {
	if o.Bin == "" {
		o.Bin = defaultBin
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("launch ironic: %w", err)
	}
	if o.Image == nil {
		if err := Installed(o.Bin); err != nil {
			return nil, fmt.Errorf("launch ironic: %w", err)
		}
	}
	i := &Ironic{options: o}
	if err := i.launch(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("launch ironic: %w", err), i.release())
	}
	return i, nil
}

func (i *Ironic) launch(ctx context.Context, o Options) (err error) {
	ctx, cancel := machine.WithBudget(ctx, readyTimeout)
	defer cancel()
	if i.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if i.dir, err = i.keeper.TempDir("fencelab-ironic"); err != nil {
		return err
	}
	i.log = filepath.Join(i.dir, "ironic.log")
	if i.port, err = child.HoldPort(); err != nil {
		return err
	}
	// Ironic 39 listens with SO_REUSEADDR alone, 21.4 with SO_REUSEPORT.
	if err := i.port.ShareByAddress(); err != nil {
		return err
	}
	if err := i.writeConfig(o); err != nil {
		return err
	}
	schema, err := i.command("ironic-dbsync", "create_schema")
	if err != nil {
		return err
	}
	var output bytes.Buffer
	schema.Stdout, schema.Stderr = &output, &output
	if err := run(ctx, schema); err != nil {
		return fmt.Errorf("create ironic's database: %w; its last lines:\n%s\n%s", err, &output, child.Tail(i.log))
	}
	return i.start(ctx)
}

func (i *Ironic) start(ctx context.Context) (err error) {
	command, err := i.command("ironic")
	if err != nil {
		return err
	}
	if i.process, err = child.Start("ironic", command, i.log); err != nil {
		return err
	}
	// The driver is there once a conductor has registered it.
	return child.AwaitAnswer(ctx, http.DefaultClient, i.URL()+"/v1/drivers/redfish", i.process)
}

// Kill ends Ironic as SIGKILL does, in the middle of whatever it does. Its database stays.
func (i *Ironic) Kill() error {
	if i.process == nil {
		return nil
	}
	err := i.process.Kill()
	<-i.process.Exited()
	i.process = nil
	return err
}

// Start starts an Ironic that was killed, with the database that is there.
func (i *Ironic) Start(ctx context.Context) error {
	if i.process != nil {
		return nil
	}
	ctx, cancel := machine.WithBudget(ctx, readyTimeout)
	defer cancel()
	if err := i.start(ctx); err != nil {
		return fmt.Errorf("restart ironic: %w", err)
	}
	return nil
}

//go:embed ironic.conf
var configText string

var config = template.Must(template.New("ironic.conf").Parse(configText))

func (i *Ironic) writeConfig(o Options) error {
	// conf.d stays empty: without it Ironic would read more configuration from the one in /etc. It
	// writes a script into http.
	for _, name := range []string{"conf.d", "http"} {
		if err := os.Mkdir(filepath.Join(i.dir, name), 0o700); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	if err := config.Execute(&text, struct {
		Dir, Log                                   string
		Port                                       uint16
		SyncInterval, PowerTimeout, SoftOffTimeout int64
		Enrolls                                    bool
	}{
		i.dir, i.log, i.port.Number(),
		int64(o.SyncInterval / time.Second), int64(o.PowerTimeout / time.Second), int64(o.SoftOffTimeout / time.Second),
		o.Enrolls,
	}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(i.dir, "ironic.conf"), text.Bytes(), 0o600)
}

// command is one of Ironic's executables with our configuration, in an environment that has nothing
// of ours: a proxy would be asked for the way to the BMCs, and OS_* variables override the
// configuration.
func (i *Ironic) command(name string, args ...string) (*exec.Cmd, error) {
	words := append([]string{name, "--config-file", filepath.Join(i.dir, "ironic.conf"), "--config-dir", filepath.Join(i.dir, "conf.d")}, args...)
	var cmd *exec.Cmd
	path := "/usr/bin:/bin"
	if image := i.options.Image; image != nil {
		files, err := os.MkdirTemp(i.dir, "files-")
		if err != nil {
			return nil, err
		}
		if cmd, err = image.Run(container.Life{Command: words, Own: files, Shared: []string{i.dir}}); err != nil {
			return nil, err
		}
		path = image.Path()
	} else {
		cmd = exec.Command(filepath.Join(i.options.Bin, name), words[1:]...)
		cmd.Dir = i.dir
	}
	cmd.Env = append(cmd.Env, "PATH="+path, "HOME="+i.dir, "TMPDIR="+i.dir, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1", i.keeper.Mark())
	// Ironic 39 writes its title over its environment otherwise, where the keeper looks for the
	// mark.
	cmd.Env = append(cmd.Env, "SPT_NOENV=1")
	// Ctrl-C reaches a whole process group, but we still need Ironic to clean up and to report.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	return cmd, nil
}

// run runs a command to its end, or until there is no more time for it.
func run(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may just have ended
	defer stop()
	if err := cmd.Wait(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// Log returns the end of Ironic's log.
func (i *Ironic) Log() []byte { return child.Tail(i.log) }

// URL is where the API is, without the version's path: http://127.0.0.1:port. It asks for no
// credentials.
func (i *Ironic) URL() string { return "http://" + i.port.Address() }

// Stop ends Ironic and removes its directory. It also returns an error if Ironic had ended before
// it was asked to: then what was observed says nothing about controllers. Later calls return the
// same.
func (i *Ironic) Stop() error {
	i.stop.Do(func() {
		if i.process != nil {
			i.stopErr = i.process.Stop()
		}
		i.stopErr = errors.Join(i.stopErr, i.release())
	})
	return i.stopErr
}

// release gives back what was taken, killing what still runs.
func (i *Ironic) release() error {
	var errs []error
	if i.keeper != nil {
		errs = append(errs, i.keeper.Close())
	}
	return errors.Join(append(errs, i.port.Release())...)
}
