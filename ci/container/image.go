package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// platform is that of the programs that this machine can run.
var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

// defaultPath is the PATH of an image that has none, as container engines have it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is one that was unpacked.
type Image struct {
	root   string
	config v1.Config
}

// IsFile reports whether an image is named by a file, as docker save writes it, and not by a
// reference into a registry.
func IsFile(image string) bool { return strings.HasSuffix(image, ".tar") }

// Unpack has the files of an image in a new directory below dir. A reference is pulled from
// its registry, with the credentials that Docker and Podman would use.
func Unpack(ctx context.Context, image, dir string) (*Image, error) {
	from, err := open(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("open the image %s: %w", image, err)
	}
	config, err := from.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the image %s: %w", image, err)
	}
	i := &Image{config: config.Config}
	if i.root, err = os.MkdirTemp(dir, "image-"); err != nil {
		return nil, fmt.Errorf("unpack the image %s: %w", image, err)
	}
	files := mutate.Extract(from)
	err = errors.Join(unpack(files, i.root), files.Close())
	if err != nil {
		return nil, fmt.Errorf("unpack the image %s: %w", image, err)
	}
	return i, nil
}

func open(ctx context.Context, image string) (v1.Image, error) {
	if IsFile(image) {
		return tarball.ImageFromPath(image, nil)
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	return remote.Image(reference, remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain))
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
