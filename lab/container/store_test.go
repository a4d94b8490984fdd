package container

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// saved is the file that docker save would make of an image.
func saved(t testing.TB, image v1.Image) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "witness.tar")
	tag, err := name.NewTag("localhost/witness:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	return file
}

// laid is an OCI layout with images for several platforms.
func laid(t *testing.T, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.AppendIndex(indexOf(t, images...)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// indexOf is an index of images for the platforms that they say they are for.
func indexOf(t *testing.T, images ...v1.Image) v1.ImageIndex {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return index
}

// served is the reference of images in a registry on loopback: of one, or of an index of several.
// What is asked of it passes between, unless that is nil.
func served(t *testing.T, between func(http.Handler) http.Handler, images ...v1.Image) string {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var wanted http.Handler = handler
	var on atomic.Bool
	if between != nil {
		wanted = between(handler)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if on.Load() {
			wanted.ServeHTTP(w, r)
		} else {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	called := strings.TrimPrefix(server.URL, "http://") + "/acme/witness:1"
	reference, err := name.ParseReference(called)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) == 1 {
		err = remote.Write(reference, images[0])
	} else {
		err = remote.WriteIndex(reference, indexOf(t, images...))
	}
	if err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	return called
}

// imageOf is an image with a layer of the given number of random bytes, for a platform.
func imageOf(t *testing.T, bytes int, architecture string) v1.Image {
	t.Helper()
	content := make([]byte, bytes)
	_, _ = rand.Read(content) // which never fails
	image, err := mutate.AppendLayers(empty.Image, layer(t, tar.Header{Typeflag: tar.TypeReg, Name: "content", Mode: 0o644, Linkname: string(content)}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// isWhole fails unless what a reference means can be opened in a store without its registry, and
// has the content of an image.
func isWhole(t *testing.T, s *Store, reference string, image v1.Image) {
	t.Helper()
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	meant, err := remote.Head(parsed)
	if err != nil {
		t.Fatal(err)
	}
	repository, _, _ := strings.Cut(reference, "/")
	nowhere := strings.Replace(reference, repository, "127.0.0.1:1", 1)
	i, err := s.Open(t.Context(), strings.TrimSuffix(nowhere, ":1")+"@"+meant.Digest.String())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	want := mutate.Extract(image)
	defer want.Close()
	r := tar.NewReader(want)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(i.root, "content")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("its content is %d bytes (%v), want these %d", len(got), err, len(content))
	}
}

// isWithout fails if something in a store could be taken for an image.
func isWithout(t *testing.T, s *Store) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir, "unpacked/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		if !strings.HasSuffix(file, begun) {
			t.Errorf("%s is left", file)
		}
	}
}

// counted counts the bytes of the layers and configurations that were sent.
type counted struct {
	next http.Handler
	sent atomic.Int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet {
		c.next.ServeHTTP(w, r)
		return
	}
	recorder := httptest.NewRecorder()
	c.next.ServeHTTP(recorder, r)
	for header, values := range recorder.Header() {
		w.Header()[header] = values
	}
	w.WriteHeader(recorder.Code)
	n, _ := w.Write(recorder.Body.Bytes())
	c.sent.Add(int64(n))
}

// TestOnce: an image that is there is neither pulled nor unpacked again, whoever opens it at the
// same time.
func TestOnce(t *testing.T) {
	image, other := imageOf(t, 100_000, platform.Architecture), imageOf(t, 100, "s390x")
	between := new(counted)
	reference := served(t, func(next http.Handler) http.Handler { between.next = next; return between }, other, image)
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			i, err := (&Store{Dir: dir}).Open(t.Context(), reference)
			if err != nil {
				t.Error(err)
				return
			}
			_ = i.Close()
		})
	}
	all.Wait()
	if sent := between.sent.Load(); sent > 110_000 {
		t.Errorf("%d bytes were sent", sent)
	}
	isWhole(t, &Store{Dir: dir}, reference, image)
	entries, err := os.ReadDir(filepath.Join(dir, "unpacked"))
	if err != nil || len(entries) != 1 {
		t.Errorf("there are the files of %v (%v)", entries, err)
	}
}

// TestPrune: files long unused go when another image is opened, unless something of them runs.
func TestPrune(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	long := time.Now().Add(-2 * unused)
	open := func() *Image {
		i, err := s.Open(t.Context(), saved(t, imageOf(t, 10, platform.Architecture)))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	gone, runs := open(), open()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []*Image{gone, runs} {
		if err := os.Chtimes(filepath.Dir(i.root), long, long); err != nil {
			t.Fatal(err)
		}
	}
	defer open().Close()
	defer runs.Close()
	for i, want := range map[*Image]bool{gone: false, runs: true} {
		if _, err := os.Stat(i.root); (err == nil) != want {
			t.Errorf("whether the files of an image are there: %v, want %v", err, want)
		}
	}
}

// TestRefused: an image that can't be had is refused with the reason and what to do, and nothing of
// it is left that could be taken for one.
func TestRefused(t *testing.T) {
	mine, other := imageOf(t, 1000, platform.Architecture), imageOf(t, 1000, "s390x")
	here := served(t, nil, mine)
	repository := strings.TrimSuffix(here, ":1")
	denied := func(status int) string {
		return served(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				w.WriteHeader(status)
			})
		}, mine)
	}
	wrong := served(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			body := recorder.Body.Bytes()
			if strings.Contains(r.URL.Path, "/blobs/") && len(body) > 900 {
				body[500]++
			}
			for header, values := range recorder.Header() {
				w.Header()[header] = values
			}
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(body)
		})
	}, mine)
	truncated := saved(t, imageOf(t, 100_000, platform.Architecture))
	if err := os.Truncate(truncated, 50_000); err != nil {
		t.Fatal(err)
	}
	layer := laid(t, mine)
	blobs, err := filepath.Glob(filepath.Join(layer, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs {
		if info, err := os.Stat(blob); err == nil && info.Size() > 900 {
			if err := os.Truncate(blob, 600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct{ name, image, want string }{
		{"a file that isn't there", "/nowhere/image.tar", "open the image /nowhere/image.tar: stat /nowhere/image.tar: no such file"},
		{"no reference", "No Reference", "it is no reference into a registry, and no such file or directory is here"},
		{"no registry", "127.0.0.1:1/no/registry:1", "connection refused"},
		{"no such tag", repository + ":2", "has no 2 of it; it has the tags 1: "},
		{"no such repository", strings.Replace(repository, "acme", "acne", 1), "has no acne/witness: "},
		{"no such digest", repository + "@sha256:" + strings.Repeat("0", 64), "has no sha256:000"},
		{"for another machine", served(t, nil, other), "it is for linux/s390x, and this machine runs linux/"},
		{"an index for other machines", served(t, nil, other, imageOf(t, 10, "riscv64")), "it is for linux/s390x, linux/riscv64, and this machine runs linux/"},
		{"a layout for other machines", laid(t, other), "it is for linux/s390x, and this machine runs linux/"},
		{"an archive for other machines", saved(t, other), "it is for linux/s390x, and this machine runs linux/"},
		{"a layout of two", laid(t, mine, imageOf(t, 10, platform.Architecture)), "has 2 images for linux/"},
		{"a directory that is none", t.TempDir(), "read the OCI layout: "},
		{"denied", denied(http.StatusUnauthorized), "denies it: log in with docker login or podman login"},
		{"forbidden", denied(http.StatusForbidden), "denies it: log in with docker login or podman login"},
		{"other content", wrong, "error verifying sha256 checksum"},
		{"a truncated archive", truncated, "unexpected EOF"},
		{"a truncated layer", layer, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			if _, err := s.Open(t.Context(), c.image); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			isWithout(t, s)
		})
	}
}

// TestFullDisk: an image for which there is no room says where to make some; once there is, it is
// pulled.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to mount a small file system")
	}
	image := imageOf(t, 1<<20, platform.Architecture)
	reference := served(t, nil, image)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=700k"); errors.Is(err, syscall.EPERM) {
		t.Skip("this machine doesn't let root mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	s := &Store{Dir: dir}
	if _, err := s.Open(t.Context(), reference); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room in "+dir) {
		t.Errorf("without room: %v", err)
	}
	isWithout(t, s)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	i, err := s.Open(t.Context(), reference)
	if err != nil {
		t.Fatal(err)
	}
	isWhole(t, s, reference, image)
	_ = i.Close()
}
