package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestChanging shows that every file which docs/changing.md lists is there, and names
// the example of its list.
func TestChanging(t *testing.T) {
	data, err := os.ReadFile("docs/changing.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("For example `([^`]+)`")
	listed := regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`")
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	for _, section := range strings.Split(string(data), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		of, files := example.FindStringSubmatch(section), listed.FindAllStringSubmatch(section, -1)
		if of == nil || len(files) == 0 {
			t.Errorf("%s: has no example, or lists no file", title)
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file[1])
			if err != nil {
				t.Errorf("%s: %v", title, err)
			} else if !strings.Contains(plain(string(text)), plain(of[1])) {
				t.Errorf("%s: %s says nothing of %s", title, file[1], of[1])
			}
		}
	}
}

// TestGlossary shows that a word has one meaning, and that words are sorted.
func TestGlossary(t *testing.T) {
	data, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	seen, last := make(map[string]bool), ""
	words := regexp.MustCompile(`(?m)^\| ([a-z]+) \| (.+) \|$`).FindAllStringSubmatch(string(data), -1)
	for _, word := range words[1:] { // behind the head
		if seen[word[1]] {
			t.Errorf("%s has two meanings", word[1])
		}
		if word[1] < last {
			t.Errorf("%s stands behind %s", word[1], last)
		}
		last = word[1]
		seen[word[1]] = true
	}
	if len(seen) < 20 {
		t.Errorf("the glossary has only %d words", len(seen))
	}
}
