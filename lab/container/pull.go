package container

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// tagsToName is how many of a repository's tags an error names.
const tagsToName = 10

// pull unpacks the image of a reference unless its files are here, and returns their directory.
// A reference with a digest whose files are here needs no registry. A tag may have moved: it is
// looked up each time.
func (s *Store) pull(ctx context.Context, image string) (string, error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return "", fmt.Errorf("it is no reference into a registry, and no such file or directory is here: %w", err)
	}
	if digest, ok := reference.(name.Digest); ok {
		if dir := s.filesOf(digest.DigestStr()); isDir(dir) {
			return dir, nil
		}
	}
	p := &puller{store: s, reference: reference}
	found, err := remote.Get(reference, p.options(ctx)...)
	if err != nil {
		return "", p.explain(ctx, err)
	}
	dir := s.filesOf(found.Digest.String())
	if isDir(dir) {
		return dir, nil
	}
	from, err := chosen(found)
	if err != nil {
		return "", p.explain(ctx, err)
	}
	if err := p.unpack(from, dir); err != nil {
		return "", p.explain(ctx, err)
	}
	return dir, nil
}

// chosen is the image of an answer: of an index, the one for this machine.
func chosen(found *remote.Descriptor) (v1.Image, error) {
	if !found.MediaType.IsIndex() {
		return found.Image()
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	fit, err := forHere(index)
	if err != nil {
		return nil, err
	}
	return fit[0], nil
}

// puller pulls one image.
type puller struct {
	store     *Store
	reference name.Reference
}

func (p *puller) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// unpack pulls an image into a layout, which checks each layer's digest, and writes its files from
// there. The layout doesn't stay.
func (p *puller) unpack(from v1.Image, dir string) error {
	if _, err := configOf(from); err != nil {
		return err
	}
	digest, err := from.Digest()
	if err != nil {
		return err
	}
	manifest, err := from.Manifest()
	if err != nil {
		return err
	}
	var size int64
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	pulled := filepath.Join(p.store.Dir, "pulled")
	if err := os.RemoveAll(pulled); err != nil { // of a program that was killed
		return err
	}
	defer os.RemoveAll(pulled) // the next pull removes what can't be removed now
	p.store.say("pulling the image %s: %.1f MB", p.reference, float64(size)/1e6)
	began := time.Now()
	at, err := layout.Write(pulled, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendImage(from); err != nil {
		return err
	}
	p.store.say("pulled the image %s in %s", p.reference, time.Since(began).Round(10*time.Millisecond))
	here, err := at.Image(digest)
	if err != nil {
		return err
	}
	return p.store.unpack(here, dir)
}

// explain says what to do about an answer of a registry.
func (p *puller) explain(ctx context.Context, err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		return err
	}
	registry := p.reference.Context().RegistryStr()
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s denies it: log in with docker login or podman login, whose credentials are used, or see whether the name is right: %w", registry, err)
	case http.StatusNotFound:
		tags, _ := remote.List(p.reference.Context(), p.options(ctx)...) // there may be no such repository
		if len(tags) == 0 {
			return fmt.Errorf("%s has no %s: %w", registry, p.reference.Context().RepositoryStr(), err)
		}
		slices.Sort(tags)
		more := ""
		if len(tags) > tagsToName {
			tags, more = tags[len(tags)-tagsToName:], " among others"
		}
		return fmt.Errorf("%s has no %s of it; it has the tags %s%s: %w", registry, p.reference.Identifier(), strings.Join(tags, ", "), more, err)
	}
	return err
}
