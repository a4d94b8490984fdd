package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
)

// load reads the scenario files and all those in the directories, each once and in
// order, and returns all errors at once.
func load(args []string) ([]*scenarios.Scenario, error) {
	var loaded []*scenarios.Scenario
	names := map[string]string{}
	err := eachFile(args, func(file string, data []byte) error {
		s, err := scenarios.Load(file, data, vocabulary())
		if err != nil {
			return err
		}
		loaded = append(loaded, s)
		if other, ok := names[s.Metadata.Name]; ok {
			return fmt.Errorf("%s: the name %s is taken by %s", file, s.Metadata.Name, other)
		}
		names[s.Metadata.Name] = file
		return nil
	})
	return loaded, err
}

// eachFile does something with each scenario file that the arguments name, and joins
// the errors.
func eachFile(args []string, do func(file string, data []byte) error) error {
	var failures []error
	var seen []os.FileInfo
	for _, arg := range args {
		files, err := scenarioFiles(arg)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err == nil && slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				continue // named twice
			}
			seen = append(seen, info)
			data, err := readFile(file)
			if err == nil {
				err = do(file, data)
			}
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// scenarioFiles returns the file itself, or the .yaml and .yml files below a
// directory. Hidden ones are somebody else's.
func scenarioFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	root := path + string(filepath.Separator) // so that a link to a directory is followed
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		hidden := file != root && strings.HasPrefix(filepath.Base(file), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case !entry.IsDir() && !hidden && (filepath.Ext(file) == ".yaml" || filepath.Ext(file) == ".yml"):
			files = append(files, filepath.Clean(file))
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: there is no .yaml or .yml file in it", path)
	}
	return files, err
}

// readFile reads a scenario or a plan. What is no regular file could be endless, or
// never answer; and what is too large is not read at all.
func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", file)
	case info.Size() > scenarios.MaxSize:
		return nil, fmt.Errorf("%s: the file has %d bytes: a scenario has at most %d", file, info.Size(), scenarios.MaxSize)
	}
	return os.ReadFile(file)
}

// writable makes sure that reports can be saved in a directory, before a run that
// would be lost otherwise.
func writable(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".fencelab-*"); err == nil {
			return errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	return fmt.Errorf("--out %s: %w; name a directory that can be written", dir, err)
}
