package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/ci/child"
	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
)

const (
	// readyTimeout is what a program gets until it is up, nodeReadyTimeout one that may wait for
	// Pods of real nodes, and glanceAtReady how often it
	// is asked.
	readyTimeout     = 2 * time.Minute
	nodeReadyTimeout = 6 * time.Minute
	glanceAtReady    = 100 * time.Millisecond
	// A program that ends by itself is started again, as a kubelet does, after a time
	// that doubles up to maxBackoff. One that was never up is given up at the last of
	// so many attempts.
	maxBackoff = 30 * time.Second
	attempts   = 3
)

// programs runs somebody's own executable in the place of a controller, each time with a way
// of its own to the Ironic.
type programs struct {
	childProcesses
	executable
}

// executable is what a program runs, of the host or of an image.
type executable struct {
	program *scenarios.Program
	image   *container.Image // nil if it is an executable of the host
}

// programOf is the program of a controller, nil if it is one of fencelab's or of a module.
func (b *Backend) programOf(controller string) *scenarios.Program {
	for i := range b.plan.Spec.Controllers {
		if c := &b.plan.Spec.Controllers[i]; c.Name == controller {
			return c.Program
		}
	}
	return nil
}

// starts is what starts a program. Its logs are kept with those of the other controllers.
func (b *Backend) starts(p *scenarios.Program) *programs {
	r := &programs{childProcesses{plane: b.plane, door: b.door, dir: b.dir, mark: b.keeper.Mark()}, executable{p, b.imageOf(p)}}
	b.others = append(b.others, r)
	return r
}

// requester is the role by which programs pass the policies of fencelab's manifests: those
// guard annotations by verbs that no other system's roles know.
var requester = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "lab-requester"}, Rules: []rbacv1.PolicyRule{
	{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"request-reboot"}},
	{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines"}, Verbs: []string{"request-remediation"}},
}}

func (b *Backend) hasPrograms() bool {
	return slices.ContainsFunc(b.plan.Spec.Controllers, func(c scenarios.Controller) bool { return c.Program != nil })
}

// installPrograms makes what the programs need, and lets each do what it may.
func (b *Backend) installPrograms() error {
	if err := b.admin.Create(b.ctx, requester.DeepCopy()); err != nil {
		return fmt.Errorf("make the role %s: %w", requester.Name, err)
	}
	for i := range b.plan.Spec.Controllers {
		c := &b.plan.Spec.Controllers[i]
		if c.Program == nil {
			continue
		}
		for _, name := range c.Program.Installs {
			if err := b.install(b.manifestsFor(c.Program, name)); err != nil {
				return fmt.Errorf("install %s for the program of %s: %w", name, c.Name, err)
			}
		}
		roles := c.Program.ClusterRoles
		if len(roles) == 0 {
			roles = []string{"cluster-admin"}
		}
		for _, role := range append(slices.Clone(roles), requester.Name) {
			err := b.admin.Create(b.ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "lab-" + c.Name + "-" + strings.ReplaceAll(role, ":", "-")},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userOf(c.Name)}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			})
			if err != nil {
				return fmt.Errorf("grant the program of %s the role %s: %w", c.Name, role, err)
			}
		}
	}
	return nil
}

// install makes what manifests say.
func (b *Backend) install(manifests fs.FS, err error) error {
	if err != nil {
		return err
	}
	return b.plane.Install(b.ctx, manifests)
}

// manifestsFor are what a program installs, from the host or from its image.
func (b *Backend) manifestsFor(p *scenarios.Program, name string) (fs.FS, error) {
	inside, ok := scenarios.FromImage(name)
	if !ok {
		return manifestsOf(p.File(name))
	}
	files, err := b.imageOf(p).Files()
	if err != nil {
		return nil, err
	}
	return manifestsAt(files, inside)
}

// manifestsOf are those at a path of the host.
func manifestsOf(path string) (fs.FS, error) {
	return manifestsAt(os.DirFS(filepath.Dir(path)), filepath.Base(path))
}

// manifestsAt are a file, or the files of a directory.
func manifestsAt(files fs.FS, name string) (fs.FS, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return fs.Sub(files, name)
	}
	dir, err := fs.Sub(files, path.Dir(name))
	return only{dir, path.Base(name)}, err
}

// only is one file of a directory.
type only struct {
	fs.FS
	name string
}

// ReadDir implements fs.ReadDirFS.
func (o only) ReadDir(string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, ".")
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() != o.name }), err
}

// at is the runner of a program that finds Ironic at a URL, which is empty without one.
func (r *programs) at(ironic string) runner { return programsAt{r, ironic} }

type programsAt struct {
	*programs
	ironic string
}

// start implements runner.
func (r programsAt) start(_ context.Context, name string, c controllers.Selection, _ string, through way) (incarnation, error) {
	return r.begin(userOf(c.Name), through, func(config *rest.Config) (*child.Process, string, error) {
		return r.execute(name, c, config, r.ironic)
	})
}

// execute starts the program in a directory of its own, and says where it tells that it is
// up.
func (r *programs) execute(name string, c controllers.Selection, config *rest.Config, ironic string) (*child.Process, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	own := filepath.Join(r.dir, fmt.Sprintf("program-%s-%d", name, r.started))
	tmp := filepath.Join(own, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, "", err
	}
	kubeconfig, err := cluster.Kubeconfig(config)
	if err != nil {
		return nil, "", err
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	settings := []byte("{}")
	if c.Settings != nil {
		if settings, err = json.Marshal(map[string]any{c.Name: c.Settings}); err != nil {
			return nil, "", fmt.Errorf("write the settings of %s: %w", name, err)
		}
	}
	variables := map[string]string{
		"API_SERVER": config.Host, "NAMESPACE": objects.Namespace, "PORT": strconv.Itoa(port), "TMPDIR": tmp,
		"HOME": tmp, "PATH": os.Getenv("PATH"), "IRONIC_URL": ironic,
	}
	for variable, data := range map[string][]byte{
		"KUBECONFIG": kubeconfig, "API_CA": config.CAData, "API_CERT": config.CertData, "API_KEY": config.KeyData,
		scenarios.Settings: settings,
	} {
		variables[variable] = filepath.Join(own, strings.ToLower(variable))
		if err := os.WriteFile(variables[variable], data, 0o600); err != nil {
			return nil, "", err
		}
	}
	cmd, err := r.call(own, variables)
	if err != nil {
		return nil, "", fmt.Errorf("prepare the program of %s: %w", name, err)
	}
	cmd.Env = append(cmd.Env, r.mark)
	p, err := child.Start("fencelab-"+name, cmd, r.log(name))
	return p, r.program.Expand(r.program.Ready, variables), err
}

// call is how the program is called where it is given variables, and has a directory of its own.
func (e executable) call(own string, variables map[string]string) (*exec.Cmd, error) {
	if e.image == nil {
		call := e.program.In(variables)
		if strings.Contains(call.Command[0], "/") {
			call.Command[0] = e.program.File(call.Command[0])
		}
		cmd := exec.Command(call.Command[0], call.Command[1:]...)
		cmd.Dir, cmd.Env = e.program.Dir, call.Env
		return cmd, cmd.Err
	}
	variables["PATH"] = e.image.Path()
	call := e.program.In(variables)
	files := own + "-files"
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(e.program.Dir)
	if err != nil {
		return nil, err
	}
	cmd, err := e.image.Run(container.Life{Command: call.Command, Args: call.Args, Own: files, Shared: []string{own}, ReadOnly: []string{dir}})
	if err == nil {
		cmd.Env = append(cmd.Env, call.Env...)
	}
	return cmd, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// up waits until a server says that it is up, and reports false if it has ended instead.
func up(ctx context.Context, at string, within time.Duration, ended <-chan struct{}) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
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
		case <-time.After(glanceAtReady):
		}
	}
}
