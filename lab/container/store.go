package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	// unused is how long the files of an image stay after their last use.
	unused = 7 * 24 * time.Hour
	// poll is how often a store that somebody else works on is looked at.
	poll = 200 * time.Millisecond
)

// Store is a directory of images that all programs of a user share. The images that were pulled are in an OCI layout there,
// by their digests, and beside it the files of each image that runs, or ran in the last week. Whatever is interrupted leaves
// nothing that is taken for whole.
type Store struct {
	Dir string
	// Say is told of what takes long; may be nil.
	Say func(format string, args ...any)
}

// Open has an image ready to run: a file that docker save writes, a directory with an OCI layout, or a reference, with or without
// a digest, which is pulled from its registry. What is there already is not pulled again. Close the image when nothing of it runs.
func (s *Store) Open(ctx context.Context, image string) (*Image, error) {
	i, err := s.ready(ctx, image)
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: make room in %s", err, s.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open the image %s: %w", image, err)
	}
	return i, nil
}

func (s *Store) ready(ctx context.Context, image string) (*Image, error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	from, err := s.find(ctx, image)
	if err != nil {
		return nil, err
	}
	config, err := configOf(from)
	if err != nil {
		return nil, err
	}
	files, err := s.files(from)
	if err != nil {
		return nil, err
	}
	return &Image{root: files.Name(), config: config, inUse: files}, nil
}

// configOf says how an image for this machine is run.
func configOf(from v1.Image) (v1.Config, error) {
	config, err := from.ConfigFile()
	if err != nil {
		return v1.Config{}, fmt.Errorf("read its configuration: %w", err)
	}
	if its := (v1.Platform{OS: config.OS, Architecture: config.Architecture}); !runsHere(its) {
		return v1.Config{}, fmt.Errorf("it is for %s, and this machine runs %s", its, platform)
	}
	return config.Config, nil
}

// find is the image that a name means.
func (s *Store) find(ctx context.Context, image string) (v1.Image, error) {
	info, err := os.Stat(image)
	switch {
	case err == nil && info.IsDir():
		return laidOut(image)
	case err == nil:
		return archived(image)
	case filepath.IsAbs(image) || strings.HasSuffix(image, ".tar"):
		return nil, err
	default:
		return s.pull(ctx, image)
	}
}

// lock waits until nobody else works on the store. Closing the file unlocks it, and so does the end of its process.
func (s *Store) lock(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if !said {
			said = true
			s.say("waiting for another program that works on the images in %s", s.Dir)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(poll):
		}
	}
}

func (s *Store) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(format, args...)
	}
}

// files is the directory of an image's files, which stays as long as it is open. It is called by the digest of the image's
// configuration, which names the content of every layer.
func (s *Store) files(from v1.Image) (*os.File, error) {
	digest, err := from.ConfigName()
	if err != nil {
		return nil, err
	}
	all := filepath.Join(s.Dir, "files")
	dir := filepath.Join(all, digest.Hex)
	if _, err := os.Stat(dir); err != nil {
		if err := s.unpack(from, dir); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return nil, err
	}
	f, err := inUse(dir, syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	s.prune(all, now)
	return f, nil
}

// unpack writes an image's files into a new directory.
func (s *Store) unpack(from v1.Image, dir string) error {
	part := dir + begun
	if err := os.RemoveAll(part); err != nil { // of somebody who was killed
		return err
	}
	if err := os.MkdirAll(part, 0o755); err != nil {
		return err
	}
	began := time.Now()
	archive := mutate.Extract(from)
	err := errors.Join(unpack(archive, part), archive.Close())
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("unpack its files: %w", err), os.RemoveAll(part))
	}
	if took := time.Since(began); took > time.Second {
		s.say("its files are unpacked, in %s", took.Round(100*time.Millisecond))
	}
	return nil
}

// prune removes the images that nobody has used for long, and their files unless somebody uses them now. What can't be removed
// remains.
func (s *Store) prune(all string, now time.Time) {
	entries, _ := os.ReadDir(all) // what isn't found isn't removed
	for _, entry := range entries {
		dir := filepath.Join(all, entry.Name())
		info, err := entry.Info()
		if err != nil || now.Sub(info.ModTime()) < unused {
			continue
		}
		if f, err := inUse(dir, syscall.LOCK_EX); err == nil {
			_ = os.RemoveAll(dir)
			_ = f.Close()
		}
	}
	if at, err := layout.FromPath(s.pulled()); err == nil {
		pruneLayout(at, now)
	}
}

// pruneLayout removes images whose manifest was not touched for long, and what belongs to none that remain, such as the beginning
// of a layer.
func pruneLayout(at layout.Path, now time.Time) {
	index, err := at.ImageIndex()
	if err != nil {
		return
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return
	}
	needed := make(map[string]bool)
	for _, m := range manifest.Manifests {
		info, err := os.Stat(blob(at, m.Digest))
		if err == nil && now.Sub(info.ModTime()) >= unused {
			_ = at.RemoveDescriptors(match.Digests(m.Digest))
			continue
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			return
		}
		parts, err := image.Manifest()
		if err != nil {
			return
		}
		needed[m.Digest.Hex], needed[parts.Config.Digest.Hex] = true, true
		for _, layer := range parts.Layers {
			needed[layer.Digest.Hex] = true
		}
	}
	dir := filepath.Join(string(at), "blobs", "sha256")
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !needed[entry.Name()] && now.Sub(info.ModTime()) >= unused {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// inUse opens a directory, locked until it is closed or its process has ended.
func inUse(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Variable names a directory for images.
const Variable = "FENCELAB_IMAGES"

// DefaultDir is where the images of a user are: that of [Variable], or a directory of the user's cache.
func DefaultDir() string {
	if dir := os.Getenv(Variable); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil { // a user without a home
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("user-%d", os.Getuid()))
	}
	return filepath.Join(dir, "fencelab", "images")
}
