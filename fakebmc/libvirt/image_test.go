//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
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
		case c.refused != "" && (!errors.Is(err, fakebmc.ErrNoImage) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", from, err, c.refused)
		}
	}
}

// TestNoImage tells what is wrong with a URL, which its client can correct, from what is
// wrong here.
func TestNoImage(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/away.iso", http.RedirectHandler("/secret.iso", http.StatusFound))
	mux.HandleFunc("/secret.iso", func(http.ResponseWriter, *http.Request) { t.Error("a redirection was followed") })
	mux.HandleFunc("/short.iso", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("x")) // the connection ends with the handler
	})
	mux.HandleFunc("/boot.iso", func(http.ResponseWriter, *http.Request) {})
	served := httptest.NewServer(mux)
	defer served.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		from, dir string
		ctx       context.Context
		missing   bool
		want      string
	}{
		{served.URL + "/away.iso", t.TempDir(), t.Context(), true, "give the URL where the image is"},
		{served.URL + "/none.iso", t.TempDir(), t.Context(), true, "404"},
		{served.URL + "/short.iso", t.TempDir(), t.Context(), true, "EOF"},
		{"http://127.0.0.1:1/boot.iso", t.TempDir(), t.Context(), true, "refused"},
		{"nfs://127.0.0.1/boot.iso", t.TempDir(), t.Context(), true, "by file, http or https"},
		{"http://%zz/", t.TempDir(), t.Context(), true, "invalid URL escape"},
		{served.URL + "/boot.iso", "/none", t.Context(), false, "no such file"},
		{served.URL + "/boot.iso", t.TempDir(), gone, false, "canceled"},
	} {
		_, err := fetch(c.ctx, c.from, c.dir)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fakebmc.ErrNoImage) != c.missing {
			t.Errorf("%s into %s: %v, want %q; no image: %t", c.from, c.dir, err, c.want, c.missing)
		}
		if left, err := filepath.Glob(filepath.Join(c.dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", c.from, left, err)
		}
	}
}
