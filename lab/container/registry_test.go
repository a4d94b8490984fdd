package container

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestRegistry: all images of an archive are served, each under the path that every registry would
// have it at.
func TestRegistry(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "images.tar")
	images := make(map[name.Tag]v1.Image)
	paths := map[string]string{"localhost/agents/one:2": "agents/one:2", "agent:1": "library/agent:1"}
	digests := make(map[string]v1.Hash)
	for called, path := range paths {
		tag, err := name.NewTag(called)
		if err != nil {
			t.Fatal(err)
		}
		if images[tag], err = mutate.Config(empty.Image, v1.Config{Entrypoint: []string{called}}); err != nil {
			t.Fatal(err)
		}
		if digests[path], err = images[tag].ConfigName(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tarball.MultiWriteToFile(file, images); err != nil {
		t.Fatal(err)
	}
	if err := registry.Add(file); err != nil {
		t.Fatal(err)
	}
	for path, want := range digests {
		tag, err := name.NewTag(registry.Address() + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(tag)
		if err != nil {
			t.Fatalf("pull %s: %v", path, err)
		}
		if got, err := image.ConfigName(); got != want {
			t.Errorf("%s is the image %s (%v), want %s", path, got, err, want)
		}
	}
	nameless := filepath.Join(t.TempDir(), "nameless.tar")
	digest, err := name.NewDigest("agent@sha256:" + strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(nameless, digest, empty.Image); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{nameless: "one has no name", "/nowhere.tar": "read the images in /nowhere.tar"} {
		if err := registry.Add(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("add %s: %v, want %q", file, err, want)
		}
	}
	if err := registry.Close(); err != nil {
		t.Error(err)
	}
	if err := registry.Add(file); err == nil {
		t.Error("it serves after its end")
	}
}
