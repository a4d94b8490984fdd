package scenarios

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fencelab/fencelab/scenarios/phrase"
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

// from is a local image as it is found from one directory, if it is below another.
func (i Image) from(place, root string) Image {
	rest, err := filepath.Rel(place, string(i))
	if !i.Local() || err != nil || below(root, string(i)) == string(i) || below(root, place) == place {
		return i
	}
	if !strings.HasPrefix(rest, "../") {
		rest = "./" + rest
	}
	return Image(rest)
}

// reference matches what a registry takes: a host and port where there is one, a name in lower
// case, a tag, a digest.
var reference = regexp.MustCompile(`^((localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?$`)

// Check says why no image can have this name, or why the file of that name is none.
func (i Image) Check() error {
	switch {
	case i == "":
		return nil
	case !i.Local() && !reference.MatchString(string(i)):
		return fmt.Errorf("%s can't be a reference to an image, such as example.com/acme/fencer:v1.3 in lower case; a file ends in .tar, and a directory begins with ./, ../ or /", phrase.Quote(string(i)))
	case !i.Local():
		return nil
	}
	f, err := os.Open(string(i))
	if err != nil {
		return nil // it may be built before it is needed
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil
	}
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head) // what is too short is no archive either
	if head = head[:n]; n == 512 && bytes.Equal(head[257:262], []byte("ustar")) || bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return nil
	}
	return fmt.Errorf("%s is no archive of an image: write it with docker save", i)
}

// inImage begins the name of a file that a program installs from its image.
const inImage = "image:"

// FromImage is the name of a file in the image, if what a program installs is there.
func FromImage(install string) (name string, ok bool) {
	name, ok = strings.CutPrefix(install, inImage)
	return strings.Trim(name, "/"), ok
}
