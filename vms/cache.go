package vms

import (
	"os"
	"path/filepath"
)

// What takes seconds to find out is kept beside the assets for the next lab. Labs that run at the
// same time, perhaps of users who must not write there, share it: therefore a file is only ever
// replaced as a whole, and one that can't be kept is found out again.

// keepFile keeps what was found out, if that is possible.
func keepFile(path string, data []byte) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return
	}
	_, err = file.Write(data)
	if closeErr := file.Close(); err == nil && closeErr == nil && os.Chmod(file.Name(), 0o644) == nil && os.Rename(file.Name(), path) == nil {
		return
	}
	os.Remove(file.Name())
}

// keepFiles copies the files of a directory that another one lacks or has otherwise, if that is
// possible.
func keepFiles(from, to string) {
	paths, _ := filepath.Glob(filepath.Join(from, "*")) // the pattern is a good one
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		kept := filepath.Join(to, filepath.Base(path))
		if old, err := os.ReadFile(kept); err != nil || string(old) != string(data) {
			keepFile(kept, data)
		}
	}
}
