// Command image puts a static program into a container image, which a registry, Docker,
// Podman, containerd and kind can load. Nothing is pulled, and the same program makes the
// same image. Its labels say what it was built from, and /sbom.cdx.json, also beside the
// image, lists the modules in it.
//
//	go run ./ci/image [-user UID:GID] PROGRAM NAME FILE
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	user := flag.String("user", "", "the `UID:GID` that the program runs as (default: whatever it is started as, which is root in an engine)")
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: image [-user UID:GID] PROGRAM NAME FILE")
		os.Exit(3)
	}
	if err := write(flag.Arg(0), flag.Arg(1), flag.Arg(2), *user); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// write writes an image with one program, its entrypoint, to a file.
func write(program, reference, file, user string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	entrypoint := "/" + filepath.Base(program)
	executable, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the program of the image %s: %w", tag, err)
	}
	built, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("find out what is in the program of the image %s: %w", tag, err)
	}
	list, err := bill(built)
	if err != nil {
		return fmt.Errorf("list what is in the program of the image %s: %w", tag, err)
	}
	contents, err := archive(content{entrypoint[1:], 0o755, executable}, content{"sbom.cdx.json", 0o644, list})
	if err != nil {
		return fmt.Errorf("pack the image %s: %w", tag, err)
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
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, User: user, Labels: labels(built)}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("configure the image %s: %w", tag, err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return fmt.Errorf("write the image %s: %w", tag, err)
	}
	if err := os.WriteFile(strings.TrimSuffix(file, ".tar")+".cdx.json", list, 0o644); err != nil {
		return fmt.Errorf("write what is in the image %s: %w", tag, err)
	}
	return nil
}

// labels say what a program was built from, as annotations of OCI images do.
func labels(built *buildinfo.BuildInfo) map[string]string {
	const prefix = "org.opencontainers.image."
	all := map[string]string{prefix + "title": filepath.Base(built.Path), prefix + "version": built.Main.Version, prefix + "source": "https://" + built.Main.Path}
	for _, s := range built.Settings {
		switch s.Key {
		case "vcs.revision":
			all[prefix+"revision"] = s.Value
		case "vcs.time":
			all[prefix+"created"] = s.Value
		}
	}
	return all
}

// bill is a list of the modules in a program, in CycloneDX.
func bill(built *buildinfo.BuildInfo) ([]byte, error) {
	component := func(kind cyclonedx.ComponentType, m *debug.Module) cyclonedx.Component {
		if m.Replace != nil {
			m = m.Replace
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		return cyclonedx.Component{BOMRef: url, Type: kind, Name: m.Path, Version: m.Version, PackageURL: url}
	}
	main := component(cyclonedx.ComponentTypeApplication, &built.Main)
	modules := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, &debug.Module{Path: "std", Version: built.GoVersion})}
	for _, m := range built.Deps {
		modules = append(modules, component(cyclonedx.ComponentTypeLibrary, m))
	}
	list := cyclonedx.NewBOM()
	list.Metadata, list.Components = &cyclonedx.Metadata{Component: &main}, &modules
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list)
	return out.Bytes(), err
}

// content is a file of an image.
type content struct {
	name string
	mode int64
	data []byte
}

// archive has files in it, as of no time.
func archive(files ...content) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
