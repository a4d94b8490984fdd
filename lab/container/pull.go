package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	// attempts is how often in a row a layer may break off without a byte of it having come.
	attempts = 3
	// sayEvery is how often a pull says how far it is.
	sayEvery = 5 * time.Second
	// tagsToName is how many of a repository's tags an error names.
	tagsToName = 10
)

// begun ends the name of a layer's file that isn't whole.
const begun = ".part"

// kept is the annotation of what an image was pulled as.
const kept = "org.opencontainers.image.ref.name"

// pull is the image that a reference means, in the store. A reference with a digest that is there needs no registry; a tag may
// have moved, so it is looked up each time.
func (s *Store) pull(ctx context.Context, image string) (v1.Image, error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("it is no reference into a registry, and no such file or directory is here: %w", err)
	}
	at, err := s.layout()
	if err != nil {
		return nil, err
	}
	p := &puller{store: s, at: at, reference: reference}
	if digest, ok := reference.(name.Digest); ok {
		if here, err := p.here(digest.DigestStr()); err == nil {
			return here, nil
		}
	}
	found, err := remote.Get(reference, p.options(ctx)...)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	if found.MediaType.IsIndex() {
		if err := p.offers(found); err != nil {
			return nil, err
		}
	}
	from, err := found.Image()
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	if _, err := configOf(from); err != nil {
		return nil, p.explain(ctx, err)
	}
	digest, err := from.Digest()
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	if here, err := p.here(digest.String()); err == nil {
		return here, nil
	}
	if err := p.save(ctx, from, digest, found.Digest); err != nil {
		return nil, p.explain(ctx, err)
	}
	return p.here(digest.String())
}

// layout is where the images are that were pulled.
func (s *Store) layout() (layout.Path, error) {
	if at, err := layout.FromPath(s.pulled()); err == nil {
		return at, nil
	}
	return layout.Write(s.pulled(), empty.Index)
}

func (s *Store) pulled() string { return filepath.Join(s.Dir, "oci") }

// blob is the file of a part of an image.
func blob(at layout.Path, hash v1.Hash) string {
	return filepath.Join(string(at), "blobs", hash.Algorithm, hash.Hex)
}

// puller pulls one image.
type puller struct {
	store     *Store
	at        layout.Path
	reference name.Reference
}

func (p *puller) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(resuming{remote.DefaultTransport}),
	}
}

// here is an image that was pulled, by its digest or by that of the index that it was chosen from.
func (p *puller) here(digest string) (v1.Image, error) {
	index, err := p.at.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Digest.String() == digest || strings.HasSuffix(m.Annotations[kept], "@"+digest) {
			now := time.Now()
			if err := os.Chtimes(blob(p.at, m.Digest), now, now); err != nil { // see prune
				return nil, err
			}
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("%s is not in %s", digest, p.at)
}

// offers fails unless an index has an image for this machine.
func (p *puller) offers(found *remote.Descriptor) error {
	index, err := found.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var others []string
	for _, m := range manifest.Manifests {
		if m.Platform == nil || runsHere(*m.Platform) {
			return nil
		}
		if m.Platform.OS != "unknown" { // which attestations have
			others = append(others, m.Platform.String())
		}
	}
	return fmt.Errorf("it is for %s, and this machine runs %s", strings.Join(others, ", "), platform)
}

// save pulls the layers of an image that aren't there yet. The index, which comes last, is what says that it is there.
func (p *puller) save(ctx context.Context, from v1.Image, digest, as v1.Hash) error {
	manifest, err := from.Manifest()
	if err != nil {
		return err
	}
	config, err := from.RawConfigFile()
	if err != nil {
		return err
	}
	var missing []v1.Descriptor
	progress := &progress{say: p.store.say, image: p.reference.String(), began: time.Now()}
	for _, layer := range manifest.Layers {
		if _, err := os.Stat(blob(p.at, layer.Digest)); err != nil {
			missing = append(missing, layer)
			progress.all += layer.Size
			if info, err := os.Stat(blob(p.at, layer.Digest) + begun); err == nil {
				progress.all -= info.Size()
			}
		}
	}
	for _, layer := range missing {
		if err := p.layer(ctx, layer, progress); err != nil {
			return fmt.Errorf("pull its layer %s: %w", layer.Digest, err)
		}
	}
	progress.end()
	raw, err := from.RawManifest()
	if err != nil {
		return err
	}
	for hash, data := range map[v1.Hash][]byte{manifest.Config.Digest: config, digest: raw} { // files, in any order
		if err := p.at.WriteBlob(hash, io.NopCloser(bytes.NewReader(data))); err != nil {
			return err
		}
	}
	if err := p.at.RemoveDescriptors(match.Digests(digest)); err != nil {
		return err
	}
	return p.at.AppendDescriptor(v1.Descriptor{
		MediaType: manifest.MediaType, Digest: digest, Size: int64(len(raw)), Platform: &platform,
		Annotations: map[string]string{kept: p.reference.Context().Name() + "@" + as.String()},
	})
}

// layer pulls one. If it breaks off it goes on from there, at once as long as something comes, and else at the next pull.
func (p *puller) layer(ctx context.Context, layer v1.Descriptor, progress *progress) error {
	file := blob(p.at, layer.Digest)
	part, before := file+begun, file+".before"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	for failed := 0; ; failed++ {
		if err := os.Rename(part, before); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		had := progress.done
		err := p.fetch(ctx, layer, before, part, progress)
		if err == nil {
			_ = os.Remove(before)
			return os.Rename(part, file)
		}
		if err := keepLonger(before, part); err != nil {
			return err
		}
		if isWrong(err) {
			_ = os.Remove(part) // what is there is not what it should be
			return err
		}
		if progress.done > had {
			failed = 0
		}
		if ctx.Err() != nil || failed+1 >= attempts || !brokeOff(err) {
			return err
		}
	}
}

// keepLonger keeps of two beginnings of a layer the longer one, as the second.
func keepLonger(before, part string) error {
	had, err := os.Stat(before)
	if err != nil {
		return nil // the second is the only one, or there is none
	}
	if has, err := os.Stat(part); err == nil && has.Size() >= had.Size() {
		return os.Remove(before)
	}
	return os.Rename(before, part)
}

// fetch writes a layer into a file, of which the beginning may be in another.
func (p *puller) fetch(ctx context.Context, layer v1.Descriptor, before, part string, progress *progress) error {
	from := &beginning{whole: layer.Size}
	if f, err := os.Open(before); err == nil {
		defer f.Close()
		from.file = f
	}
	remoteLayer, err := remote.Layer(p.reference.Context().Digest(layer.Digest.String()), p.options(context.WithValue(ctx, beginningKey{}, from))...)
	if err != nil {
		return err
	}
	out, err := os.Create(part)
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := remoteLayer.Compressed() // which fails at its end unless it has the digest
	if err != nil {
		return err
	}
	defer in.Close()
	progress.skip = from.size
	if _, err := io.Copy(io.MultiWriter(out, progress), in); err != nil {
		return err
	}
	return out.Close()
}

// isWrong reports whether content has another digest than it was asked for by.
func isWrong(err error) bool { return strings.Contains(err.Error(), "error verifying") }

// brokeOff reports whether a registry, or the way to it, has ended a transfer that it had begun, or may do better the next time.
func brokeOff(err error) bool {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.Temporary() || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
	}
	var full *os.PathError
	return !errors.As(err, &full)
}

type beginningKey struct{}

// beginning is what is here of a layer already.
type beginning struct {
	file  *os.File // nil: nothing
	size  int64    // of what was used of it
	whole int64    // the layer's size
}

// resuming asks for the rest of a layer whose beginning is here, and answers with all of it.
type resuming struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r resuming) RoundTrip(request *http.Request) (*http.Response, error) {
	from, _ := request.Context().Value(beginningKey{}).(*beginning)
	ofLayer := strings.Contains(request.URL.Path, "/blobs/") || request.Response != nil // which sent it elsewhere
	if from == nil || from.file == nil || !ofLayer || request.Method != http.MethodGet {
		return r.next.RoundTrip(request)
	}
	info, err := from.file.Stat()
	if err != nil || info.Size() == 0 || info.Size() >= from.whole {
		return r.next.RoundTrip(request)
	}
	asked := request.Clone(request.Context())
	asked.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", info.Size(), from.whole-1))
	response, err := r.next.RoundTrip(asked)
	if err != nil || response.StatusCode != http.StatusPartialContent {
		return response, err
	}
	if _, err := from.file.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	from.size = info.Size()
	response.StatusCode, response.Status = http.StatusOK, "200 OK"
	response.ContentLength += from.size
	response.Header.Del("Content-Range")
	response.Header.Del("Content-Length")
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(from.file, response.Body), response.Body}
	return response, nil
}

// progress tells how far a pull is, in bytes.
type progress struct {
	say         func(format string, args ...any)
	image       string
	began, said time.Time
	all, done   int64 // of what was not here before
	skip        int64 // of what comes next, which is here
}

// Write implements io.Writer: it counts what has come.
func (p *progress) Write(data []byte) (int, error) {
	here := min(int64(len(data)), p.skip)
	p.skip -= here
	p.done += int64(len(data)) - here
	if now := time.Now(); now.Sub(p.began) >= sayEvery && now.Sub(p.said) >= sayEvery {
		p.said = now
		p.say("pulling the image %s: %s of %s, %s/s", p.image, size(p.done), size(p.all), size(p.rate()))
	}
	return len(data), nil
}

func (p *progress) rate() int64 { return int64(float64(p.done) / time.Since(p.began).Seconds()) }

func (p *progress) end() {
	if p.done > 0 {
		p.say("pulled the image %s: %s in %s, %s/s", p.image, size(p.done), time.Since(p.began).Round(10*time.Millisecond), size(p.rate()))
	}
}

// size is a number of bytes in words.
func size(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
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
