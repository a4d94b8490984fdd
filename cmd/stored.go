package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelab/fencelab/cmd/store"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/exit"
)

const (
	// keptEvery is how long a blob grows before it is stored again. Whoever goes on after a process
	// that was killed plays that much anew.
	keptEvery = 30 * time.Second
	// farewell is how long a process that has to stop takes to store its blob.
	farewell = 20 * time.Second
)

// stored keeps the files of a shard in a store, too. Without one it does nothing.
type stored struct {
	place  string
	bucket *store.Bucket
	// kept is when the blob was last stored. The first time comes at once: if the store takes
	// nothing, that shows before hours have gone.
	kept time.Time
}

// open reads from the environment how to reach the store. The error has an exit code.
func (s *stored) open() (err error) {
	if s.place != "" {
		s.bucket, err = store.Open(s.place, os.Getenv)
	}
	return exit.BadInput(err)
}

// fetch gets a file, unless as much of it is here. The error has an exit code.
func (s *stored) fetch(ctx context.Context, name string) error {
	if s.bucket == nil || name == "" {
		return nil
	}
	data, err := readAll(s.bucket.Get(ctx, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if here, statErr := os.Stat(name); err == nil && (statErr != nil || here.Size() < int64(len(data))) {
		if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			err = os.WriteFile(name, data, 0o644)
		}
	}
	return exit.Coded(exit.Environment, err)
}

func readAll(r io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// due says that it is time to store the blob again.
func (s *stored) due() bool {
	if s.bucket == nil || time.Since(s.kept) < keptEvery {
		return false
	}
	s.kept = time.Now()
	return true
}

// keep stores files, also when the context has ended. The error has an exit code.
func (s *stored) keep(ctx context.Context, names ...string) error {
	if s.bucket == nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer done()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil {
			err = s.bucket.Put(ctx, filepath.Base(name), data)
		}
		if err != nil {
			return exit.Coded(exit.Environment, fmt.Errorf("store what was played: %w", err))
		}
	}
	return nil
}

// source is a blob, wherever it is.
type source struct {
	name string
	open func() (io.ReadCloser, error)
	// seconds is how long cores were busy with it.
	seconds float64
}

// blobsIn finds the blobs in files, directories and stores.
func blobsIn(ctx context.Context, places []string) (all []source, err error) {
	for _, place := range places {
		before := len(all)
		if strings.HasPrefix(place, store.Scheme) {
			all, err = blobsStored(ctx, all, place)
		} else {
			err = filepath.WalkDir(place, func(name string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() && (name == place || filepath.Ext(name) == shard.Extension) {
					all = append(all, source{name, func() (io.ReadCloser, error) { return os.Open(name) }, spent(name)})
				}
				return err
			})
		}
		if err == nil && len(all) == before {
			err = fmt.Errorf("%s: there is no *%s in it", place, shard.Extension)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// blobsStored adds the blobs of a store.
func blobsStored(ctx context.Context, all []source, place string) ([]source, error) {
	bucket, err := store.Open(place, os.Getenv)
	if err != nil {
		return nil, err
	}
	names, err := bucket.List(ctx)
	at := make(map[string]int)
	for _, name := range names {
		if path.Ext(name) == shard.Extension {
			at[name], all = len(all), append(all, source{name: strings.TrimSuffix(place, "/") + "/" + name, open: func() (io.ReadCloser, error) { return bucket.Get(ctx, name) }})
		}
	}
	for _, name := range names {
		i, of := at[strings.TrimSuffix(name, secondsBeside)]
		if path.Ext(name) != secondsBeside || !of || err != nil {
			continue
		}
		var text []byte
		if text, err = readAll(bucket.Get(ctx, name)); err == nil {
			all[i].seconds = secondsIn(text)
		}
	}
	return all, err
}
