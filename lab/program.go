package lab

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
)

// starts returns the runner of a program. Its logs are kept with those of the other controllers.
func (b *Backend) starts(p *scenarios.Program) *runner.Programs {
	r := runner.NewPrograms(b.plane.controlPlane, b.plane.door, b.dir, b.keeper.Mark(), b.failed, runner.Executable{Program: p, Image: b.images.of(p)})
	b.procs.programs = append(b.procs.programs, r)
	return r
}

// requester is the role by which programs pass the policies of fencelab's manifests: those
// guard annotations by verbs that no other system's roles know.
var requester = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "lab-requester"}, Rules: []rbacv1.PolicyRule{
	{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"request-reboot"}},
	{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines"}, Verbs: []string{"request-remediation"}},
}}

// installPrograms makes what the programs need, and lets each do what it may.
func (b *Backend) installPrograms() error {
	if err := b.plane.admin.Create(b.ctx, requester.DeepCopy()); err != nil {
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
			err := b.plane.admin.Create(b.ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "lab-" + c.Name + "-" + strings.ReplaceAll(role, ":", "-")},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: runner.UserOf(c.Name)}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			})
			if err != nil {
				return fmt.Errorf("grant the program of %s the role %s: %w", c.Name, role, err)
			}
		}
	}
	return nil
}

// adoptKinds adds those that programs have installed and the plan describes to the lab's.
func (b *Backend) adoptKinds() (err error) {
	if b.kinds, err = b.kinds.Adopt(&b.plan.Spec, b.plane.admin.RESTMapper()); err == nil {
		b.record.Adopt(b.kinds)
	}
	return err
}

// install makes what manifests say.
func (b *Backend) install(manifests fs.FS, err error) error {
	if err != nil {
		return err
	}
	return b.plane.Install(b.ctx, manifests)
}

// manifestsFor returns the manifests that a program installs, from the host or from its image.
func (b *Backend) manifestsFor(p *scenarios.Program, name string) (fs.FS, error) {
	inside, ok := scenarios.FromImage(name)
	if !ok {
		return manifestsOf(p.File(name))
	}
	files, err := b.images.of(p).Files()
	if err != nil {
		return nil, err
	}
	return manifestsAt(files, inside)
}

// manifestsOf returns the manifests at a path of the host.
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
