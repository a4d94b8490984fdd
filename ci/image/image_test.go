package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fencelab/fencelab/controllers/manifests"
)

// TestImage: the image that the DaemonSet of agents names has a program that needs no other
// file, runs that DaemonSet's command, and is the same each time.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "fencelab")
	if out, err := exec.Command("../static.sh", program).CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	container := daemonSet(t).Spec.Template.Spec.Containers[0]
	first, second := filepath.Join(dir, "first.tar"), filepath.Join(dir, "second.tar")
	for _, file := range []string{first, second} {
		if err := write(program, container.Image, file, "65532:65532"); err != nil {
			t.Fatal(err)
		}
	}
	a, b := read(t, first), read(t, second)
	if !bytes.Equal(a, b) {
		t.Error("the same program makes two images")
	}

	image, err := tarball.ImageFromPath(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/fencelab"}; !slices.Equal(config.Config.Entrypoint, want) {
		t.Errorf("the image runs %q, and not %q", config.Config.Entrypoint, want)
	}
	if config.Config.User != "65532:65532" || !strings.HasSuffix(config.Config.Labels["org.opencontainers.image.source"], "/fencelab/fencelab") {
		t.Errorf("the image runs as %q, with the labels %v", config.Config.User, config.Config.Labels)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has %d layers (%v)", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	root := filepath.Join(dir, "root")
	unpack(t, content, root)

	var list struct{ Components []struct{ Purl string } }
	for _, file := range []string{filepath.Join(root, "sbom.cdx.json"), filepath.Join(dir, "first.cdx.json")} {
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil || !slices.ContainsFunc(list.Components, func(c struct{ Purl string }) bool {
			return strings.HasPrefix(c.Purl, "pkg:golang/sigs.k8s.io/controller-runtime@v")
		}) {
			t.Errorf("%s lists %v, %v", file, list, err)
		}
	}

	// In an empty root there is nothing that it could load.
	run := exec.Command(filepath.Join(root, "fencelab"), append(container.Args, "--print-manifests")...)
	run.Env = []string{}
	out, err := run.CombinedOutput()
	if err != nil || !bytes.Equal(out, manifests.Agent) {
		t.Errorf("the program of the image: %v\n%s", err, out)
	}
	// The image plays a story in a pipeline, and serves a BMC.
	story := exec.Command(filepath.Join(root, "fencelab"), "run", "catalog:machine-remediation/three-hosts.yaml", "--strategy", "sweep", "--schedules", "20")
	story.Env, story.Dir = []string{}, root
	if out, err := story.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("20 held")) {
		t.Errorf("the program of the image tells a story: %v\n%s", err, out)
	}
	help := exec.Command(filepath.Join(root, "fencelab"), "bmc", "--help")
	help.Env = []string{}
	if out, err := help.CombinedOutput(); err != nil {
		t.Errorf("the program of the image explains its BMC: %v\n%s", err, out)
	}
	if linked, _ := exec.Command("ldd", filepath.Join(root, "fencelab")).CombinedOutput(); !strings.Contains(string(linked), "not a dynamic executable") {
		t.Errorf("the program of the image is linked with\n%s", linked)
	}
}

// TestErrors: asking for an image that can't be made gives an error that says so.
func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	for _, c := range []struct{ program, name, want string }{
		{"/nowhere/fencelab", "localhost/fencelab:latest", "read the program of the image localhost/fencelab:latest"},
		{os.Args[0], "Fence Lab", "name the image"},
		{"image_test.go", "localhost/fencelab:latest", "find out what is in the program of the image localhost/fencelab:latest"},
	} {
		if err := write(c.program, c.name, file, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %q: %v; it should say %q", c.program, c.name, err, c.want)
		}
	}
}

func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests.Agent), 1024)
	for {
		var set appsv1.DaemonSet
		if err := decoder.Decode(&set); err != nil {
			t.Fatalf("find the DaemonSet: %v", err)
		}
		if set.Kind == "DaemonSet" {
			return &set
		}
	}
}

func unpack(t *testing.T, archive io.Reader, dir string) {
	t.Helper()
	r := tar.NewReader(archive)
	for {
		header, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, header.Name), data, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
