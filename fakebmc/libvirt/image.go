//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

const (
	// maxImage is more than any installer has.
	maxImage = 16 << 30
	// stallTimeout is how long a server may send nothing.
	stallTimeout = 30 * time.Second
)

// image is what is in a virtual drive.
type image struct {
	url  string
	file string // as the hypervisor opens it
	own  bool   // the file was fetched for this
}

// remove deletes a file that was fetched, of no image none.
func (i *image) remove() error {
	if i == nil || !i.own {
		return nil
	}
	if err := os.Remove(i.file); err != nil {
		return fmt.Errorf("delete the image: %w", err)
	}
	return nil
}

// noImage is an error of the URL, and not of this machine. It says the same as the
// error that it is made of.
type noImage struct{ error }

func (e noImage) Unwrap() []error { return []error{e.error, fakebmc.ErrNoImage} }

// fetch makes the image at a URL available as a file. A file URL names the file itself; an image
// behind http or https is downloaded into dir. Redirects aren't followed, because only the URL
// itself was allowed.
func fetch(ctx context.Context, from, dir string) (*image, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, noImage{fmt.Errorf("fetch image %s: %w", from, err)}
	}
	switch u.Scheme {
	case "file":
		if err := regular(u.Path); err != nil {
			return nil, noImage{fmt.Errorf("open image %s: %w", from, err)}
		}
		return &image{url: from, file: u.Path}, nil
	case "http", "https":
		file, err := download(ctx, from, dir)
		if err != nil {
			return nil, fmt.Errorf("fetch image %s: %w", from, err)
		}
		return &image{url: from, file: file, own: true}, nil
	}
	return nil, noImage{fmt.Errorf("fetch image %s: images come by file, http or https", from)}
}

// regular refuses what is no file, and a path that leads elsewhere: what was allowed is
// where the image lies, not what somebody's symbolic link there points to.
func regular(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real != path {
		return fmt.Errorf("symbolic links lead from there to %s; give the image's own path, and allow that", real)
	}
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	return err
}

var errStalled = fmt.Errorf("its server sent nothing for %v", stallTimeout)

func download(ctx context.Context, from, dir string) (name string, err error) {
	fetching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	body, length, err := get(fetching, from)
	if err != nil {
		return "", blame(fetching, err)
	}
	defer body.Close()
	file, err := os.CreateTemp(dir, "*.iso")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			name, err = "", errors.Join(err, os.Remove(file.Name()))
		}
	}()
	// The hypervisor runs as another user.
	if err := file.Chmod(0o644); err != nil {
		return "", err
	}
	n, err := io.Copy(file, io.LimitReader(progress{fetching, body, stalled}, maxImage+1))
	switch {
	case err != nil:
		return "", err
	case n > maxImage:
		return "", noImage{fmt.Errorf("it has more than %d bytes", int64(maxImage))}
	case length >= 0 && n != length:
		return "", noImage{fmt.Errorf("%d of its %d bytes came", n, length)}
	}
	return file.Name(), nil
}

// get begins to read what a URL leads to; length is -1 when its server doesn't say.
func get(ctx context.Context, from string) (body io.ReadCloser, length int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, 0, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		err = fmt.Errorf("its server sends on to %s, which was not asked for; give the URL where the image is", resp.Header.Get("Location"))
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("its server answers %s", resp.Status)
	case resp.ContentLength > maxImage:
		err = fmt.Errorf("it has %d bytes; the limit is %d", resp.ContentLength, int64(maxImage))
	default:
		return resp.Body, resp.ContentLength, nil
	}
	_ = resp.Body.Close() // what it says doesn't matter any more
	return nil, 0, err
}

// blame says whose an error of the way to the server is: the server's, unless whoever
// fetches has given up.
func blame(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled):
		return noImage{errStalled}
	case cause != nil:
		return err
	}
	return noImage{err}
}

// progress reads what a server sends, and puts the stall off with each read.
type progress struct {
	ctx context.Context
	io.Reader
	stalled *time.Timer
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.stalled.Reset(stallTimeout)
	}
	if err != nil && err != io.EOF {
		err = blame(p.ctx, err)
	}
	return n, err
}
