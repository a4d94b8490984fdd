package runner

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// ControlPlane gives a runner clients that the control plane believes, and a server in front of it
// that clients believe.
type ControlPlane interface {
	ConfigFor(user string, groups ...string) *rest.Config
	ProxyConfig() (*tls.Config, error)
}

// ChildProcesses runs each controller as a process of its own: fencelab's command
// controllers, as a user would run it, with a kubeconfig that leads to a proxy.
type ChildProcesses struct {
	plane      ControlPlane
	door       *door.Door
	Executable string
	dir        string // for their files
	mark       string // in the environment: the keeper kills what carries it
	// failed is called with the errors and panics in their logs, by the process and of which
	// object.
	failed func(process, about string, err error)

	mu      sync.Mutex
	started int
	files   []string // logs, in the order of the first starts
}

// NewChildProcesses returns a runner that starts controllers with executable, which is fencelab,
// and keeps their files in dir. Their environment contains mark. It calls failed for each error and
// panic in their logs, with the name of the process and the object that it is about.
func NewChildProcesses(plane ControlPlane, through *door.Door, executable, dir, mark string, failed func(process, about string, err error)) *ChildProcesses {
	return &ChildProcesses{plane: plane, door: through, Executable: executable, dir: dir, mark: mark, failed: failed}
}

// Start implements Runner.
func (r *ChildProcesses) Start(_ context.Context, name string, c controllers.Selection, lease string, through gate.Way) (Incarnation, error) {
	return r.begin(name, gate.Client{User: UserOf(c.Name)}, through, func(config *rest.Config) (begun, error) {
		p, err := r.command(name, c, lease, config)
		return begun{process: p}, err
	})
}

// begin starts what run starts behind a proxy of its own to the API server.
func (r *ChildProcesses) begin(name string, client gate.Client, through gate.Way, run func(*rest.Config) (begun, error)) (Incarnation, error) {
	serving, err := r.plane.ProxyConfig()
	if err != nil {
		return nil, err
	}
	var transport http.RoundTripper
	proxy, err := r.door.Serve(r.plane.ConfigFor(client.User), func(next http.RoundTripper) http.RoundTripper {
		transport = next
		return through(next)
	}, serving, client)
	if err != nil {
		return nil, err
	}
	config := r.plane.ConfigFor(client.User)
	config.Host = proxy.URL()
	heard := complaints{file: r.logOf(name), told: func(about string, err error) { r.failed(name, about, err) }}
	if info, err := os.Stat(heard.file); err == nil {
		heard.offset = info.Size() // skip the output of earlier lives
	}
	started := &childProcess{disconnect: func() { utilnet.CloseIdleConnectionsFor(transport) }, done: make(chan struct{})}
	if started.begun, err = run(config); err != nil {
		return nil, errors.Join(err, r.door.Close(proxy))
	}
	go func() {
		defer close(started.done)
		heard.follow(started.process.Exited())
		started.closed = r.door.Close(proxy)
		started.end()
		started.disconnect()
	}()
	return started, nil
}

// command starts the command with files of its own.
func (r *ChildProcesses) command(name string, c controllers.Selection, lease string, config *rest.Config) (*child.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	prefix := filepath.Join(r.dir, fmt.Sprintf("%s-%d-", name, r.started))
	kubeconfig, err := cluster.Kubeconfig(config)
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(map[string]any{c.Name: c.Settings})
	if err != nil {
		return nil, fmt.Errorf("write the settings of %s: %w", name, err)
	}
	overlay, err := json.Marshal(map[string]any{c.Name: c.Overlay})
	if err != nil {
		return nil, fmt.Errorf("write the overlay of %s: %w", name, err)
	}
	args := []string{"controllers", "--controllers", c.Name, "--health-probe-bind-address", "0", "--metrics-bind-address", "0"}
	if lease == "" {
		args = append(args, "--no-leader-election")
	} else {
		args = append(args, "--leader-election-id", lease, "--leader-election-namespace", objects.Namespace)
	}
	for _, f := range []struct {
		flag string
		data []byte
	}{{"kubeconfig", kubeconfig}, {"settings", settings}, {"overlay", overlay}} {
		path := prefix + f.flag
		if err := os.WriteFile(path, f.data, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--"+f.flag, path)
	}
	cmd := exec.Command(r.Executable, args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"HOME=" + r.dir, "TMPDIR=" + r.dir, r.mark}
	return child.Start("fencelab-"+name, cmd, r.log(name))
}

// log is the file for what all lives of a process say. It is called with mu held.
func (r *ChildProcesses) log(name string) string {
	log := r.logOf(name)
	if !slices.Contains(r.files, log) {
		r.files = append(r.files, log)
	}
	return log
}

func (r *ChildProcesses) logOf(name string) string {
	return filepath.Join(r.dir, "controller-"+name+".log")
}

// Logs implements Runner.
func (r *ChildProcesses) Logs() (logs []play.Artifact) {
	for _, file := range r.files {
		if data, err := os.ReadFile(file); err == nil {
			logs = append(logs, play.Artifact{Name: filepath.Base(file), Data: data})
		}
	}
	return logs
}

// childProcess is a controller that runs as a process of its own.
type childProcess struct {
	begun
	disconnect func()
	done       chan struct{} // closed when it and its proxy have ended
	closed     error
}

func (c *childProcess) Kill() { _ = c.process.Kill() } // it fails if the process has ended

func (c *childProcess) Ended() <-chan struct{} { return c.done }

func (c *childProcess) Failure() error { return errors.Join(c.process.Failure(), c.closed) }

func (c *childProcess) Pause() error { return c.process.Pause() }

func (c *childProcess) Resume() error { return c.process.Resume() }

func (c *childProcess) Ready() (string, *container.Network) { return c.readyAt, c.network }

// Pid is that of the process.
func (c *childProcess) Pid() int { return c.process.Pid() }
