package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// glance is how often a program is asked whether it is up.
const glance = 100 * time.Millisecond

// Programs runs a foreign executable in the place of a controller, each time with a way of its own
// to the Ironic.
type Programs struct {
	ChildProcesses
	Executable
}

// NewPrograms runs one program, as NewChildProcesses runs fencelab's own.
func NewPrograms(plane ControlPlane, through *door.Door, dir, mark string, failed func(process, about string, err error), e Executable) *Programs {
	return &Programs{ChildProcesses{plane: plane, door: through, dir: dir, mark: mark, failed: failed}, e}
}

// Executable is a program to run, of the host or of an image.
type Executable struct {
	Program *scenarios.Program
	Image   *container.Image // nil if it is an executable of the host
}

// At is the runner of a program that finds Ironic at a URL, which is empty without one, and what it
// asks at some addresses.
func (r *Programs) At(ironic string, addresses ...string) Runner {
	return programsAt{r, ironic, addresses}
}

type programsAt struct {
	*Programs
	ironic    string
	addresses []string
}

// Start implements Runner.
func (r programsAt) Start(_ context.Context, name string, c controllers.Selection, _ string, through gate.Way) (Incarnation, error) {
	client := gate.Client{User: UserOf(c.Name)}
	if r.Image != nil {
		client.Token = rand.Text()
	}
	return r.begin(name, client, through, func(config *rest.Config) (begun, error) {
		return r.execute(name, c, config, client.Token)
	})
}

// execute starts the program in a directory of its own.
func (r programsAt) execute(name string, c controllers.Selection, config *rest.Config, token string) (begun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	own := filepath.Join(r.dir, fmt.Sprintf("program-%s-%d", name, r.started))
	tmp := filepath.Join(own, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return begun{}, err
	}
	kubeconfig, err := cluster.Kubeconfig(config)
	if err != nil {
		return begun{}, err
	}
	port, err := FreePort()
	if err != nil {
		return begun{}, err
	}
	settings := []byte("{}")
	if c.Settings != nil {
		if settings, err = json.Marshal(map[string]any{c.Name: c.Settings}); err != nil {
			return begun{}, fmt.Errorf("write the settings of %s: %w", name, err)
		}
	}
	variables := map[string]string{
		"API_SERVER": config.Host, "NAMESPACE": objects.Namespace, "PORT": strconv.Itoa(port), "TMPDIR": tmp,
		"HOME": tmp, "PATH": os.Getenv("PATH"), "IRONIC_URL": r.ironic,
	}
	for variable, data := range map[string][]byte{
		"KUBECONFIG": kubeconfig, "API_CA": config.CAData, "API_CERT": config.CertData, "API_KEY": config.KeyData,
		scenarios.Settings: settings,
	} {
		variables[variable] = filepath.Join(own, strings.ToLower(variable))
		if err := os.WriteFile(variables[variable], data, 0o600); err != nil {
			return begun{}, err
		}
	}
	api, err := url.Parse(config.Host)
	if err != nil {
		return begun{}, err
	}
	files := make(map[string]string)
	if r.Image != nil { // it also finds what a Pod does
		variables["KUBERNETES_SERVICE_HOST"], variables["KUBERNETES_SERVICE_PORT"] = api.Hostname(), api.Port()
		files[serviceAccount+"ca.crt"] = variables["API_CA"]
		for file, text := range map[string]string{"token": token, "namespace": objects.Namespace} {
			files[serviceAccount+file] = filepath.Join(own, file)
			if err := os.WriteFile(files[serviceAccount+file], []byte(text), 0o600); err != nil {
				return begun{}, err
			}
		}
	}
	cmd, err := r.Call(own, variables, files)
	if err != nil {
		return begun{}, fmt.Errorf("prepare the program of %s: %w", name, err)
	}
	cmd.Env = append(cmd.Env, r.mark)
	b := begun{readyAt: r.Program.Expand(r.Program.Ready, variables)}
	if r.Program.OwnNetwork {
		if b.network, err = container.NewNetwork(append([]string{api.Host}, r.addresses...)...); err != nil {
			return begun{}, err
		}
		if err := b.network.Enter(cmd); err != nil {
			b.network.Close()
			return begun{}, err
		}
	}
	if b.process, err = child.Start("fencelab-"+name, cmd, r.log(name)); err != nil {
		b.end()
		return begun{}, err
	}
	if b.network != nil {
		b.network.Serve()
	}
	return b, nil
}

// begun is a program that was started.
type begun struct {
	process *child.Process
	readyAt string // as an incarnation is ready
	// network is the program's own, nil if it has the host's.
	network *container.Network
}

// end ends what outlives the process.
func (b *begun) end() {
	if b.network != nil {
		b.network.Close()
	}
}

// serviceAccount is the directory with the credentials of a Pod.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// Call is how the program is called where it is given variables, and has a directory of its own; of
// an image, it finds files of the host at some paths.
func (e Executable) Call(own string, variables, files map[string]string) (*exec.Cmd, error) {
	if e.Image == nil {
		call := e.Program.In(variables)
		if strings.Contains(call.Command[0], "/") {
			call.Command[0] = e.Program.File(call.Command[0])
		}
		cmd := exec.Command(call.Command[0], call.Command[1:]...)
		cmd.Dir, cmd.Env = e.Program.Dir, call.Env
		return cmd, cmd.Err
	}
	variables["PATH"] = e.Image.Path()
	call := e.Program.In(variables)
	layers := own + "-files"
	if err := os.Mkdir(layers, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(e.Program.Dir)
	if err != nil {
		return nil, err
	}
	cmd, err := e.Image.Run(container.Life{Command: call.Command, Args: call.Args, Own: layers, Files: files, Shared: []string{own}, ReadOnly: []string{dir}})
	if err == nil {
		cmd.Env = append(cmd.Env, call.Env...)
	}
	return cmd, err
}

func FreePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Up waits until a server says that it is up, and reports false if it has ended instead. It is
// asked over a network of its own if that isn't nil.
func Up(ctx context.Context, at string, network *container.Network, within time.Duration, ended <-chan struct{}) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if network != nil {
		transport.DialContext = network.DialContext
	}
	client := &http.Client{Timeout: time.Second, Transport: transport}
	defer client.CloseIdleConnections()
	var last error
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return false, err
		}
		switch response, err := client.Do(request); {
		case err != nil:
			last = err
		default:
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return true, nil
			}
			last = fmt.Errorf("it answered %s", response.Status)
		}
		select {
		case <-ended:
			return false, nil // whoever waits for that says so
		case <-ctx.Done():
			return false, fmt.Errorf("not ready after %s: %w", within, last)
		case <-time.After(glance):
		}
	}
}
