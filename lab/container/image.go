package container

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// platform is that of the programs that this machine can run.
var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// runsHere reports whether this machine runs programs of a platform. An image that says nothing is
// taken at its word.
func runsHere(p v1.Platform) bool {
	return (p.OS == "" || p.OS == platform.OS) && (p.Architecture == "" || p.Architecture == platform.Architecture)
}

// defaultPath is the PATH of an image that has none, as container engines have it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is one whose files are in a store.
type Image struct {
	root   string
	config v1.Config
	inUse  *os.File // the directory of its files, locked
}

// Close lets the files of the image go, at some time; the nil Image has none.
func (i *Image) Close() error {
	if i == nil {
		return nil
	}
	return i.inUse.Close()
}

// Files returns the files of the image. No link leads out of them.
func (i *Image) Files() (fs.FS, error) {
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}

// archived is the image in a file that docker save writes.
func archived(file string) (v1.Image, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return nil, err
	}
	if len(manifest) > 1 {
		return nil, fmt.Errorf("the archive has %d images: save one", len(manifest))
	}
	return tarball.ImageFromPath(file, nil)
}

// laidOut is the image for this machine in a directory with an OCI layout.
func laidOut(dir string) (v1.Image, error) {
	at, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read the OCI layout: %w", err)
	}
	index, err := at.ImageIndex()
	if err != nil {
		return nil, err
	}
	fit, err := forHere(index)
	if err != nil {
		return nil, err
	}
	if len(fit) > 1 {
		return nil, fmt.Errorf("the OCI layout has %d images for %s: keep one", len(fit), platform)
	}
	return fit[0], nil
}

// forHere are the images of an index that run on this machine, at least one.
func forHere(index v1.ImageIndex) ([]v1.Image, error) {
	var fit []v1.Image
	var others []string
	if err := choose(index, &fit, &others); err != nil {
		return nil, err
	}
	switch {
	case len(fit) > 0:
		return fit, nil
	case len(others) > 0:
		return nil, fmt.Errorf("it is for %s, and this machine runs %s", strings.Join(others, ", "), platform)
	}
	return nil, errors.New("it has no image")
}

// choose looks through an index, and those in it, for images that run here, and notes for what the
// others are.
func choose(index v1.ImageIndex, fit *[]v1.Image, others *[]string) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		switch {
		case m.MediaType.IsIndex():
			inner, err := index.ImageIndex(m.Digest)
			if err == nil {
				err = choose(inner, fit, others)
			}
			if err != nil {
				return err
			}
		case !m.MediaType.IsImage() || m.Platform != nil && m.Platform.OS == "unknown": // such as an attestation
		case m.Platform == nil || runsHere(*m.Platform):
			image, err := index.Image(m.Digest)
			if err != nil {
				return err
			}
			*fit = append(*fit, image)
		default:
			*others = append(*others, m.Platform.String())
		}
	}
	return nil
}

// unpack writes the files of an archive, all of them as ours: whatever runs there is mapped
// to us. No name leads out of the directory.
func unpack(archive io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = write(root, header, r)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, header *tar.Header, content io.Reader) error {
	file := path.Clean(strings.TrimPrefix(header.Name, "/"))
	if file == "." {
		return nil
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(file, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return root.Chmod(file, header.FileInfo().Mode().Perm()|0o700) // so that we can remove it
	case tar.TypeReg:
		out, err := root.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, header.FileInfo().Mode().Perm()|0o200)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, file)
	case tar.TypeLink:
		return root.Link(path.Clean(strings.TrimPrefix(header.Linkname, "/")), file)
	}
	return nil // devices, which the program gets as in any container
}
