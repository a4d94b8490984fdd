package container

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// built is a static program of testdata, and what is in its file.
func built(t testing.TB, name string) (program, data string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", program, "./testdata/"+name+".go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return program, string(content)
}

// testImage is an image with a program that prints what it sees.
func testImage(t testing.TB) v1.Image {
	t.Helper()
	_, program := built(t, "witness")
	image, err := mutate.AppendLayers(empty.Image,
		layer(t, tar.Header{Typeflag: tar.TypeDir, Name: "app/", Mode: 0o555}, tar.Header{Typeflag: tar.TypeReg, Name: "app/witness", Mode: 0o755, Linkname: program},
			tar.Header{Typeflag: tar.TypeReg, Name: "app/old", Mode: 0o644, Linkname: "old"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/resolv.conf", Linkname: "/nowhere/resolv.conf"},
			tar.Header{Typeflag: tar.TypeDir, Name: "run/", Mode: 0o755}, tar.Header{Typeflag: tar.TypeSymlink, Name: "var/run", Linkname: "/run"},
			tar.Header{Typeflag: tar.TypeLink, Name: "bin/witness", Linkname: "app/witness"}),
		layer(t, tar.Header{Typeflag: tar.TypeReg, Name: "app/.wh.old"}, tar.Header{Typeflag: tar.TypeReg, Name: "app/new", Mode: 0o644, Linkname: "new"}))
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{Entrypoint: []string{"witness"}, Cmd: []string{"files"}, WorkingDir: "/app", Env: []string{"FROM=image", "PATH=/bin"}, User: "65532"})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// layer has files, whose content is in their header's name of a link.
func layer(t testing.TB, headers ...tar.Header) v1.Layer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLives: the program of an image, wherever that comes from, sees the image's files and
// environment, what it is given, and nothing else of the host; what it writes ends with its life.
func TestLives(t *testing.T) {
	image := testImage(t)
	store := &Store{Dir: t.TempDir(), Say: t.Logf}
	for _, from := range []string{saved(t, image), laid(t, image), served(t, nil, image)} {
		ready, err := store.Open(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		given, readOnly := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(given, "question"), []byte("who?"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second life finds the files as the first did
			said := run(t, ready, Life{Env: []string{"GIVEN=" + given, "READONLY=" + readOnly, "SELF=me"}, Own: t.TempDir(), Shared: []string{given}, ReadOnly: []string{readOnly},
				Files: map[string]string{"/var/run/secrets/told": filepath.Join(given, "question")}})
			for _, want := range []string{"pid 1", "dir /app", "uid 0", "FROM=image SELF=me", "app: new witness;", "question: who?", "told: who? <nil>", "write to app: <nil>", "write to given: <nil>",
				"read-only file system", "processes: 1", "null: 0 <nil>", "role: \"\""} {
				if !strings.Contains(said, want) {
					t.Errorf("the program of %s doesn't say %q:\n%s", from, want, said)
				}
			}
		}
		if answer, err := os.ReadFile(filepath.Join(given, "answer")); err != nil || string(answer) != "me" {
			t.Errorf("the program has answered %q, %v", answer, err)
		}
		if said := run(t, ready, Life{Command: []string{"/app/witness", "other", "words"}, Env: []string{"GIVEN=/", "READONLY=/"}, Own: t.TempDir()}); !strings.Contains(said, "words: other words\n") {
			t.Errorf("with another command it says:\n%s", said)
		}
		files, err := ready.Files()
		if err != nil {
			t.Fatal(err)
		}
		if data, err := fs.ReadFile(files, "app/new"); err != nil || string(data) != "new" {
			t.Errorf("its file is %q, %v", data, err)
		}
		if err := ready.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNoProgram: an image that can't be run is reported with its reason.
func TestNoProgram(t *testing.T) {
	i := &Image{root: t.TempDir()}
	if _, err := i.Run(Life{Own: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "say what it runs") {
		t.Errorf("an image that runs nothing: %v", err)
	}
	cmd, err := i.Run(Life{Command: []string{"manager", "--flag"}, Own: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), `run manager --flag of the image: exec: "manager": executable file not found in $PATH`) {
		t.Errorf("an image without its program: %v\n%s", err, out)
	}
}

// TestNothingLeadsOut: an image whose names lead out of it isn't unpacked.
func TestNothingLeadsOut(t *testing.T) {
	for i, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "../outside", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "link/outside", Mode: 0o644},
		{Typeflag: tar.TypeLink, Name: "inside", Linkname: "../outside"},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		dir := t.TempDir()
		for _, h := range []tar.Header{{Typeflag: tar.TypeSymlink, Name: "link", Linkname: dir}, h} {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		root := filepath.Join(dir, "root")
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unpack(&archive, root); err == nil || err == io.EOF {
			t.Errorf("%d: %s was unpacked", i, h.Name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "outside")); err == nil {
			t.Errorf("%d: there is a file outside of the image", i)
		}
	}
}

func run(t *testing.T, i *Image, l Life) string {
	t.Helper()
	cmd, err := i.Run(l)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, out))
	}
	return string(out)
}
