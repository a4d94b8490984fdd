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

// fetch makes a file of a URL: the one that file names, or a new one in dir.
// Redirections aren't followed: where they lead was not allowed.
func fetch(ctx context.Context, from, dir string) (*image, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, fmt.Errorf("fetch image %s: %w", from, err)
	}
	switch u.Scheme {
	case "file":
		err := regular(u.Path)
		if err != nil {
			return nil, fmt.Errorf("open image %s: %w", from, err)
		}
		return &image{url: from, file: u.Path}, nil
	case "http", "https":
		file, err := download(ctx, from, dir)
		if err != nil {
			return nil, fmt.Errorf("fetch image %s: %w", from, err)
		}
		return &image{url: from, file: file, own: true}, nil
	}
	return nil, fmt.Errorf("fetch image %s: images come by file, http or https", from)
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errStalled) {
			err = errStalled
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return "", fmt.Errorf("its server sends on to %s, which was not asked for; give the URL where the image is", resp.Header.Get("Location"))
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("its server answers %s", resp.Status)
	case resp.ContentLength > maxImage:
		return "", fmt.Errorf("it has %d bytes; the limit is %d", resp.ContentLength, int64(maxImage))
	}
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
	n, err := io.Copy(file, io.LimitReader(progress{resp.Body, stalled}, maxImage+1))
	switch {
	case err != nil:
		return "", err
	case n > maxImage:
		return "", fmt.Errorf("it has more than %d bytes", int64(maxImage))
	case resp.ContentLength >= 0 && n != resp.ContentLength:
		return "", fmt.Errorf("%d of its %d bytes came", n, resp.ContentLength)
	}
	return file.Name(), nil
}

// progress puts the stall off with each read.
type progress struct {
	io.Reader
	stalled *time.Timer
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.stalled.Reset(stallTimeout)
	}
	return n, err
}
