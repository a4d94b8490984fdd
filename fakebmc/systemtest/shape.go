package systemtest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Shape makes a mockup of a file that has each path with its resource, and returns its directory.
func Shape(t testing.TB, file string) (dir string) {
	t.Helper()
	data, err := os.ReadFile(file)
	var resources map[string]json.RawMessage
	if err := errors.Join(err, json.Unmarshal(data, &resources)); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for at, resource := range resources {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, at), 0o755), os.WriteFile(filepath.Join(dir, at, "index.json"), resource, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
