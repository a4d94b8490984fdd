package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestStories: every story is in the binary, however deep its directory.
func TestStories(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".yaml" {
			return err
		}
		there, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if here, err := Stories.ReadFile(filepath.ToSlash(file)); err != nil || string(here) != string(there) {
			t.Errorf("%s is not in the binary: %v", file, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
