package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const program = `package main

import (
	"fmt"
	"os"
)

const unit = "s"

type counter struct{ n int }

// add adds all.
func (c *counter) add(all ...int) {
	for _, n := range all {
		c.n += n
	}
}

func (c counter) twice() (n int, unit string) { return 2 * c.n, "half " }

func half(n int, _ string) int { return n / 2 }

func main() {
	c := new(counter)
	c.add(1, 2)
	n, kind := c.twice()
	fmt.Println(half(n, ""), kind+unit, len(os.Args))
}
`

// module writes the program as a module and returns its root.
func module(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.24\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTogether: each mistake is made by its own program, whether it shares one with others or not.
func TestTogether(t *testing.T) {
	root := module(t)
	mistake := func(name, find, replace string) Mistake {
		return Mistake{name, []Change{{File: "main.go", Find: find, Replace: replace}}}
	}
	want := map[string]string{
		"":                "3 half s 2",
		"adds-too-little": "1 half s 2", "adds_too_much": "6 half s 2", // of one function
		"thrice": "4 half s 2", "thrice.half": "9 half s 2",
		"const": "3 half m 2", "nameless": "6 half s 2", "main": "3 half s 3", "another-type": "3 half s 2", // not of bodies that can ask
	}
	twice := mistake("thrice.half", "2 * c.n", "6 * c.n")
	all := []Mistake{
		mistake("adds-too-little", "		c.n += n\n", "		c.n = min(n, 1)\n"), mistake("adds_too_much", "c.n += n", "c.n += 2 * n"),
		mistake("thrice", "2 * c.n", "3 * c.n"), twice,
		mistake("const", `unit = "s"`, `unit = "m"`), mistake("nameless", "return n / 2", "return n"),
		mistake("main", "len(os.Args)", "len(os.Args)+1"), mistake("another-type", "struct{ n int }", "struct{ n, m int }"),
	}
	p, err := Together(t.Context(), root, ".", t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	var apart []string
	got := map[string]string{}
	for name := range want {
		command, done, err := p.Command(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), command[0], append(command[1:], "argument")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
		got[name] = strings.TrimSpace(string(output))
		if done(); command[0] != "env" {
			apart = append(apart, name)
			if _, err := os.Stat(command[0]); err == nil {
				t.Errorf("%s: its program is left behind", name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slices.Sort(apart)
	if want := []string{"another-type", "const", "main", "nameless"}; !slices.Equal(apart, want) {
		t.Errorf("built for themselves: %v, want %v", apart, want)
	}
}

func TestTogetherRefuses(t *testing.T) {
	root := module(t)
	mistake := func(find, replace string) Mistake {
		return Mistake{"a", []Change{{File: "main.go", Find: find, Replace: replace}}}
	}
	for want, all := range map[string][]Mistake{
		"two mistakes are called a": {mistake("2 * c.n", "1"), mistake("2 * c.n", "2")},
		"stands 0 times":            {mistake("3 * c.n", "1")},
		"undefined: nothing":        {mistake("2 * c.n", "nothing")},
	} {
		if _, err := Together(t.Context(), root, ".", t.TempDir(), all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
