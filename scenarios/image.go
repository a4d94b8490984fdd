package scenarios

import (
	"path/filepath"
	"strings"
)

// Image names a container image: a file that docker save writes, which ends in .tar; a directory
// with an OCI layout, which begins with ./, ../ or /; or a reference into a registry, with a tag or
// a digest.
type Image string

// Local reports whether the image is a file or a directory of this machine.
func (i Image) Local() bool {
	name := string(i)
	return strings.HasSuffix(name, ".tar") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || filepath.IsAbs(name)
}

// In is the image as it is found from a directory.
func (i Image) In(dir string) Image {
	if !i.Local() || filepath.IsAbs(string(i)) {
		return i
	}
	return Image(filepath.Join(dir, string(i)))
}

// inImage begins the name of a file that a program installs from its image.
const inImage = "image:"

// FromImage is the name of a file in the image, if what a program installs is there.
func FromImage(install string) (name string, ok bool) {
	name, ok = strings.CutPrefix(install, inImage)
	return strings.Trim(name, "/"), ok
}
