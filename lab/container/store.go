package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	// unused is how long the files of an image stay after their last use.
	unused = 7 * 24 * time.Hour
	// poll is how often a store that somebody else works on is looked at.
	poll = 200 * time.Millisecond
	// begun ends the name of a directory of files that isn't whole.
	begun = ".part"
	// configFile has an image's configuration, beside its files.
	configFile = "config.json"
)

// Store is a directory of images that all programs of a user share: the files of each image that
// runs now or ran in the last week. Whatever is interrupted leaves nothing that is taken for whole.
type Store struct {
	Dir string
	// Say gets reports of what takes long; may be nil.
	Say func(format string, args ...any)
}

// Open has an image ready to run: a file that docker save writes, a directory with an OCI layout,
// or a reference, with or without a digest, which is pulled from its registry. What is there
// already is not pulled again. Close the image when nothing of it runs.
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
	dir, err := s.unpacked(ctx, image)
	if err != nil {
		return nil, err
	}
	return s.use(dir)
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

// unpacked is the directory with the files of the image that a name means.
func (s *Store) unpacked(ctx context.Context, image string) (string, error) {
	var from v1.Image
	info, err := os.Stat(image)
	switch {
	case err == nil && info.IsDir():
		from, err = laidOut(image)
	case err == nil:
		from, err = archived(image)
	case !filepath.IsAbs(image) && !strings.HasSuffix(image, ".tar"):
		return s.pull(ctx, image)
	}
	if err != nil {
		return "", err
	}
	digest, err := from.ConfigName() // its own digest would have every layer compressed
	if err != nil {
		return "", err
	}
	dir := s.filesOf(digest.String())
	if isDir(dir) {
		return dir, nil
	}
	return dir, s.unpack(from, dir)
}

// filesOf is the directory of an image's files and configuration. The digest names the content of
// every layer.
func (s *Store) filesOf(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return filepath.Join(s.Dir, "unpacked", hex)
}

func isDir(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// lock waits until nobody else works on the store. Closing the file unlocks it, and so does the end
// of its process.
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

// use opens an image whose files are unpacked. They stay as long as it is open.
func (s *Store) use(dir string) (*Image, error) {
	data, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	i := &Image{root: filepath.Join(dir, "root")}
	if err := json.Unmarshal(data, &i.config); err != nil {
		return nil, fmt.Errorf("read its configuration: %w", err)
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return nil, err
	}
	if i.inUse, err = inUse(dir, syscall.LOCK_SH); err != nil {
		return nil, err
	}
	s.prune(now)
	return i, nil
}

// unpack writes an image's files and configuration into a new directory.
func (s *Store) unpack(from v1.Image, dir string) error {
	config, err := configOf(from)
	if err != nil {
		return err
	}
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	part := dir + begun
	if err := os.RemoveAll(part); err != nil { // of a program that was killed
		return err
	}
	root := filepath.Join(part, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	began := time.Now()
	archive := mutate.Extract(from)
	err = errors.Join(unpack(archive, root), archive.Close(), os.WriteFile(filepath.Join(part, configFile), data, 0o644))
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

// prune removes the files of images that were not used for long, unless something of them runs.
// What can't be removed remains.
func (s *Store) prune(now time.Time) {
	all := filepath.Join(s.Dir, "unpacked")
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

// DefaultDir is where the images of a user are: that of [Variable], or a directory of the user's
// cache.
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
