// Command image puts a static program into a container image, which a registry, Docker,
// Podman, containerd and kind can load. Nothing is pulled, and the same program makes the
// same image.
//
//	go run ./ci/image PROGRAM NAME FILE
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: image PROGRAM NAME FILE")
		os.Exit(3)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// write writes an image with one program, its entrypoint, to a file.
func write(program, reference, file string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	entrypoint := "/" + filepath.Base(program)
	contents, err := archive(program, entrypoint[1:])
	if err != nil {
		return fmt.Errorf("read the program of the image %s: %w", tag, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(contents)), nil })
	if err != nil {
		return fmt.Errorf("make the layer of the image %s: %w", tag, err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("add the layer to the image %s: %w", tag, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("configure the image %s: %w", tag, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{entrypoint}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("configure the image %s: %w", tag, err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return fmt.Errorf("write the image %s: %w", tag, err)
	}
	return nil
}

// archive has one executable in it, as of no time.
func archive(path, name string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}
