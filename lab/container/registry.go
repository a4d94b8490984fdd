package container

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Registry serves images on a loopback port, from memory, to anyone who can connect.
type Registry struct {
	address string
	server  *http.Server
	running sync.WaitGroup
}

// NewRegistry starts one, without images.
func NewRegistry() (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve images: %w", err)
	}
	silent := log.New(io.Discard, "", 0)
	r := &Registry{address: listener.Addr().String(), server: &http.Server{Handler: registry.New(registry.Logger(silent)), ErrorLog: silent}}
	r.running.Go(func() { _ = r.server.Serve(listener) }) // it ends with Close
	return r, nil
}

// Address is its host:port.
func (r *Registry) Address() string { return r.address }

// Add serves the images of a file that docker save writes, under the names that they have there.
// Which registry a name means makes no difference.
func (r *Registry) Add(file string) error {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return fmt.Errorf("read the images in %s: %w", file, err)
	}
	for _, image := range manifest {
		if len(image.RepoTags) == 0 {
			return fmt.Errorf("read the images in %s: one has no name, by which Pods could ask for it", file)
		}
		for _, called := range image.RepoTags {
			if err := r.add(file, called); err != nil {
				return fmt.Errorf("serve the image %s of %s: %w", called, file, err)
			}
		}
	}
	return nil
}

func (r *Registry) add(file, called string) error {
	tag, err := name.NewTag(called)
	if err != nil {
		return err
	}
	content, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		return err
	}
	// Where a node looks for it: to the other library the first word of localhost/agent is no
	// registry.
	wanted, err := reference.ParseDockerRef(called)
	if err != nil {
		return err
	}
	here, err := name.NewTag(r.address + "/" + reference.Path(wanted) + ":" + tag.TagStr())
	if err != nil {
		return err
	}
	return remote.Write(here, content)
}

// Close ends it.
func (r *Registry) Close() error {
	err := r.server.Close()
	r.running.Wait()
	return err
}
