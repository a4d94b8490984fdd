package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
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
func (b *Backend) starts(p *scenarios.Program) (*programs, error) {
	r := &programs{childProcesses{plane: b.plane, door: b.door, dir: b.dir, mark: b.keeper.Mark()}, p, nil}
	b.others = append(b.others, r)
	var err error
	if p.Image != "" {
		r.image, err = container.Unpack(b.ctx, cmp.Or(p.ImageFile(), p.Image), b.dir)
	}
	return r, err
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
			if err := b.install(c.Program.File(name)); err != nil {
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

// install makes what manifests say, in a file or the files of a directory.
func (b *Backend) install(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	files := os.DirFS(path)
	if !info.IsDir() {
		files = only{os.DirFS(filepath.Dir(path)), filepath.Base(path)}
	}
	return b.plane.Install(b.ctx, files)
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
	if r.image != nil {
		variables["PATH"] = r.image.Path()
	}
	words, environment := r.program.In(variables)
	cmd, err := r.prepare(name, own, words)
	if err != nil {
		return nil, "", err
	}
	cmd.Env = append(append(cmd.Env, environment...), r.mark)
	p, err := child.Start("fencelab-"+name, cmd, r.log(name))
	return p, r.program.Expand(r.program.Ready, variables), err
}

// prepare is what runs words, of the host or of an image, where the directory own is the
// program's.
func (r *programs) prepare(name, own string, words []string) (*exec.Cmd, error) {
	if r.image != nil {
		files := own + "-files"
		if err := os.Mkdir(files, 0o700); err != nil {
			return nil, err
		}
		dir, err := filepath.Abs(r.program.Dir)
		if err != nil {
			return nil, err
		}
		return r.image.Run(container.Life{Command: words, Own: files, Shared: []string{own}, ReadOnly: []string{dir}})
	}
	cmd, err := commandOf(r.program, words)
	if err != nil {
		return nil, fmt.Errorf("find the executable of %s: %w", name, err)
	}
	return cmd, nil
}

// commandOf runs words, which are the program's, as an executable of the host.
func commandOf(p *scenarios.Program, words []string) (*exec.Cmd, error) {
	if strings.Contains(words[0], "/") {
		words[0] = p.File(words[0])
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = p.Dir
	return cmd, cmd.Err
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
