package libvirt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksLeadNowhere: neither a file nor a directory of what was allowed may point
// elsewhere.
func TestLinksLeadNowhere(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	secret, images := filepath.Join(dir, "secret"), filepath.Join(dir, "images")
	for _, err := range []error{
		os.Mkdir(secret, 0o755), os.Mkdir(images, 0o755),
		os.WriteFile(filepath.Join(secret, "key"), nil, 0o600), os.WriteFile(filepath.Join(images, "boot.iso"), nil, 0o600),
		os.Symlink(filepath.Join(secret, "key"), filepath.Join(images, "file.iso")), os.Symlink(secret, filepath.Join(images, "sub")),
		os.Symlink("loop", filepath.Join(images, "loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, refused string }{
		{"boot.iso", ""}, {"file.iso", "give the image's own path"}, {"sub/key", "symbolic links lead from there to " + secret},
		{"loop", "too many links"}, {"none", "no such file"}, {"", "no regular file"},
	} {
		from := "file://" + filepath.Join(images, c.path)
		i, err := fetch(t.Context(), from, "")
		switch {
		case c.refused == "" && (err != nil || i.file != filepath.Join(images, c.path)):
			t.Errorf("%s: %+v, %v", from, i, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", from, err, c.refused)
		}
	}
}
