package process

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// TestAnyImage: programs come from images, pulled from a registry or in an OCI layout, with what
// they install, and the lab's Ironic does, and all is as it is without.
func TestAnyImage(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	registry, err := container.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() }) // it is this process's
	fencer := func(dir string) v1.Image {
		return packed(t, []string{"python3", "/app/fencer.py"}, append(python(t), from(dir+"/fencer.py", "app/fencer.py"), from(dir+"/role.yaml", "app/role.yaml"))...)
	}
	pulled := served(t, registry, "acme/fencer:1", fencer(pythonFencer))
	laid := laidOut(t, fencer(mended(t, pythonFencer, "fencer.py", asWritten, asItShould)))
	ofPython := systemFile(t, `
    - name: python-fencer
      plays: remediation
      program: {image: nowhere/fencer:1, installs: ["image:/app/role.yaml"], clusterRoles: [python-fencer]}
`)
	const unreachable = "scenarios/catalog/machine-remediation/unreachable-bmc.yaml"
	type imageCase struct {
		name  string
		code  int
		says  string
		story string
		flags []string
	}
	cases := []imageCase{
		{"pulled", exit.Violated, "fenced-before-release: the Node of worker-1 was deleted", unreachable, []string{"--system", ofPython, "--image", pulled}},
		{"in a layout", exit.Held, "held      unreachable-bmc", unreachable, []string{"--system", ofPython, "--image", "python-fencer=" + laid}},
		{"of no such tag", exit.Environment, "has no 2 of it; it has the tags 1", unreachable, []string{"--system", ofPython, "--image", strings.TrimSuffix(pulled, "1") + "2"}},
	}
	const manager, infrastructure = ".cache/cluster-api/manager", ".cache/cluster-api/infrastructure"
	if _, err := os.Stat(manager); err == nil {
		image := packed(t, []string{"/infrastructure", "connect", "/manager"},
			from(manager, "manager"), from(infrastructure, "infrastructure"), from(".cache/cluster-api/crds", "crds"))
		provider, err := filepath.Abs("docs/examples/cluster-api/manifests/provider.yaml")
		if err != nil {
			t.Fatal(err)
		}
		system := systemFile(t, `
    - name: cluster-api
      plays: [deletion, healthcheck]
      program:
        image: `+served(t, registry, "acme/manager:1", image)+`
        args: ["--namespace=${NAMESPACE}", --health-addr=0, --diagnostics-address=0, "--webhook-port=${PORT}", --webhook-cert-dir=/,
          "--webhook-cert-name=${API_CERT}", "--webhook-key-name=${API_KEY}", "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields"]
        installs: ["image:crds"]
    - name: infrastructure
      plays: [deletion, healthcheck]
      program:
        image: `+served(t, registry, "acme/infrastructure:1", mutateEntrypoint(t, image, "/infrastructure"))+`
        installs: [`+provider+`]
        ready: "http://127.0.0.1:${PORT}/readyz"
`)
		cases = append(cases, imageCase{"Cluster API's manager", exit.Held, "held      capi-no-hooks", aboutClusterAPI + "/capi-no-hooks.yaml", []string{"--system", system}})
	}
	if _, err := os.Stat("/usr/bin/ironic-dbsync"); err == nil {
		image := packed(t, nil, append(python(t), from("/usr/lib/python3", ""), from("/usr/lib/x86_64-linux-gnu/ossl-modules", ""), from("/usr/share/zoneinfo", ""), from("/usr/share/ironic-common", ""), from("/etc/ssl", ""), from("/usr/bin/ironic", ""), from("/usr/bin/ironic-dbsync", ""))...)
		cases = append(cases, imageCase{"Ironic", exit.Held, "held      cut-off-host", "scenarios/catalog/machine-remediation/cut-off-host.yaml", []string{"--power", "ironic", "--ironic-image", laidOut(t, image)}})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, said := inLab(t, ends(c.code, c.says), c.story, append(c.flags, "--hosts", "model")...)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ended with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}

// systemFile is a file of a system with controllers.
func systemFile(t *testing.T, controllers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "system.yaml")
	const head = "apiVersion: fencelab.dev/v1alpha1\nkind: System\nmetadata: {name: images, description: Programs of images.}\nspec:\n  controllers:"
	if err := os.WriteFile(file, []byte(head+controllers), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// packedFile is a file of this machine, or a directory, and what it is called in an image.
type packedFile struct{ here, there string }

// from packs the file here under the name there, or under its own name if there is empty.
func from(here, there string) packedFile {
	if there == "" {
		there = strings.TrimPrefix(here, "/")
	}
	return packedFile{here, there}
}

// python is this machine's, with all that its modules load.
func python(t *testing.T) []packedFile {
	t.Helper()
	real, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		t.Fatal(err)
	}
	lib := "/usr/lib/" + filepath.Base(real)
	all := []packedFile{{real, "usr/bin/python3"}, from(lib, ""), from("/etc/passwd", ""), from("/etc/services", "")}
	load := []string{real}
	for _, dir := range []string{lib, "/usr/lib/python3"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".so") {
				load = append(load, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	said, err := exec.Command("ldd", load...).Output()
	if err != nil && len(said) == 0 {
		t.Fatal(err)
	}
	var libraries []string
	for _, found := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(said), -1) {
		if !slices.Contains(libraries, found[1]) {
			libraries = append(libraries, found[1])
			all = append(all, from(found[1], "usr"+strings.TrimPrefix(found[1], "/usr")))
		}
	}
	return all
}

// packed is an image of files that runs as its entrypoint says. As in Debian, libraries are below
// /usr.
func packed(t *testing.T, entrypoint []string, files ...packedFile) v1.Image {
	t.Helper()
	archive, err := os.Create(filepath.Join(t.TempDir(), "layer.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	w := tar.NewWriter(archive)
	for _, link := range []string{"lib", "lib64", "bin"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		err := filepath.WalkDir(f.here, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				return nil // a link that leads nowhere, or to a directory
			}
			return add(w, path, filepath.Join(f.there, strings.TrimPrefix(path, f.here)), info)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(archive.Name(), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.Config(image, v1.Config{Entrypoint: entrypoint}); err != nil {
		t.Fatal(err)
	}
	return image
}

func add(w *tar.Writer, path, as string, info fs.FileInfo) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: as, Mode: int64(info.Mode().Perm()), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// mutateEntrypoint is an image that runs something else.
func mutateEntrypoint(t *testing.T, image v1.Image, entrypoint string) v1.Image {
	t.Helper()
	image, err := mutate.Config(image, v1.Config{Entrypoint: []string{entrypoint}})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// served is the reference of an image in a registry.
func served(t *testing.T, registry *container.Registry, called string, image v1.Image) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag(called)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	if err := registry.Add(file); err != nil {
		t.Fatal(err)
	}
	return registry.Address() + "/" + called
}

// laidOut is a directory with the OCI layout of an image.
func laidOut(t *testing.T, image v1.Image) string {
	t.Helper()
	at, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.AppendImage(image); err != nil {
		t.Fatal(err)
	}
	return string(at)
}
