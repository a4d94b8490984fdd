package page

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir returns the directory of a saved run that is named, by itself or by one of its
// files, or "" if that is a file without a history beside it.
func Dir(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("show a run: %w", err)
	}
	if info.IsDir() {
		return name, nil
	}
	dir := filepath.Dir(name)
	if _, err := os.Stat(filepath.Join(dir, "history.jsonl")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, nil
}
