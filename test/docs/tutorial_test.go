package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tutorial has files that its reader writes, and commands that need them.
const tutorial = "docs/tutorial.md"

// TestTutorial does what the tutorial says, from its first line to its last: a block
// that begins with the name of a file in a comment is written to that file, a diff
// changes the first one, sh is run, and console is run and compared.
func TestTutorial(t *testing.T) {
	data, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text, dir := string(data), t.TempDir()
	clone := dir
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	titled := regexp.MustCompile(`^(?://|#) (\S+)\n`)
	first := ""
	now := fence.ReplaceAllStringFunc(text, func(block string) string {
		parts := fence.FindStringSubmatch(block)
		title := titled.FindStringSubmatch(parts[2])
		switch kind, content := parts[1], parts[2]; {
		case title != nil:
			if write(title[1], strings.TrimPrefix(content, title[0])); first == "" {
				first = title[1]
			}
		case kind == "diff":
			old, err := os.ReadFile(filepath.Join(dir, first))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(content, "\n")
			before, after := strings.TrimPrefix(lines[0], "-"), strings.TrimPrefix(lines[1], "+")
			if strings.Count(string(old), before) != 1 {
				t.Errorf("%q does not stand once in %s", before, first)
			}
			write(first, strings.Replace(string(old), before, after, 1))
		case kind == "sh":
			// The clone is here, its binary is built, and the directory is under it.
			content = strings.NewReplacer("make build\n", "", "=../..", "="+root).Replace(content)
			cmd := exec.Command("sh", "-ec", content+"pwd\n")
			cmd.Dir = dir
			output, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", content, err)
			}
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			dir = lines[len(lines)-1]
		case kind == "console":
			return "```console\n" + session(t, dir, content, clone) + "```"
		default:
			t.Errorf("nobody knows what to do with a block of %q", kind)
		}
		return block
	})
	compare(t, tutorial, text, now)
	pages, err := filepath.Glob(filepath.Join(dir, "out", "*", "report.html"))
	if err != nil || len(pages) == 0 {
		t.Errorf("no report.html lies beside the plan (%v)", err)
	}
}
