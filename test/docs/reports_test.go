package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// TestReportsAreDocumented runs a scenario that is violated, and sees to it that
// docs/reports.md describes every field of what is saved.
func TestReportsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if code := cmd.Execute(t.Context(), []string{"run", "--out", dir, "docs/examples/split-brain.yaml", "docs/examples/slow-bmc.yaml"},
		strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer)); code != exit.Violated {
		t.Fatalf("exit code %d, want %d", code, exit.Violated)
	}
	fields := map[string]bool{}
	var collect func(value any)
	collect = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				fields[name] = true
				if name != "facts" { // whose names are each controller's own
					collect(inner)
				}
			}
		case []any:
			for _, inner := range value {
				collect(inner)
			}
		}
	}
	for _, name := range []string{"*/report.json", "*/history.jsonl", "*/bmc.jsonl", "*/trace.jsonl", "report.json"} {
		files, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil || len(files) != strings.Count(name, "*")+1 {
			t.Fatalf("%s was saved %d times (%v), want %d times", name, len(files), err, strings.Count(name, "*")+1)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for lines := json.NewDecoder(bytes.NewReader(data)); lines.More(); {
				var value any
				if err := lines.Decode(&value); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				collect(value)
			}
		}
	}
	if len(fields) < 40 {
		t.Errorf("only %d fields were saved: %v", len(fields), slices.Sorted(maps.Keys(fields)))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !strings.Contains(string(page), fmt.Sprintf("`%s`", name)) {
			t.Errorf("docs/reports.md says nothing of the field %s", name)
		}
	}
}
