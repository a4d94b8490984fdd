package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// A comment of more columns, with tabs of four, can't be read beside the code.
	commentWidth = 100
	// A function of more lines can't be kept in mind; one that has a reason says it in its comment,
	// as a sentence that begins so.
	functionLines = 100
	longBecause   = "It is long because"
)

// turns are turns of phrase that readers have stumbled over, each with what to write instead.
var turns = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^(Who|Whom) [a-z]`), "begin with the subject: one that waits, a client that asks"},
	{regexp.MustCompile(`^Of (so|two|several|those|all|a|an|the|one) `), "begin with the subject: 1 in freshOneIn schedules is new"},
	{regexp.MustCompile(`\b[Bb]e it\b`), "write even if, or whether"},
	{regexp.MustCompile(`\b(has|have) the word\b`), "say what happens then"},
	{regexp.MustCompile(`\bso short ago\b`), "write within this time"},
}

// style lists comments that are too wide or put in a way that readers stumble over, and functions
// that are too long.
func style(t *tree) (problems []string, err error) {
	for _, s := range t.sources {
		if ast.IsGenerated(s.file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.root, s.path))
		if err != nil {
			return nil, err
		}
		block := map[int]bool{} // the lines of general comments
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				for line := t.fset.Position(c.Pos()).Line; strings.HasPrefix(c.Text, "/*") && line <= t.fset.Position(c.End()).Line; line++ {
					block[line] = true
				}
			}
		}
		for i, line := range strings.Split(string(text), "\n") {
			wide := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if (block[i+1] || strings.HasPrefix(strings.TrimSpace(line), "//")) && wide > commentWidth {
				problems = append(problems, fmt.Sprintf("%s:%d: a comment of %d columns: break it at %d, so that it can be read beside the code", s.path, i+1, wide, commentWidth))
			}
		}
		for _, group := range s.file.Comments {
			problems = append(problems, stumbles(t, s, group)...)
		}
		if s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			name, doc := "a function without a name", ""
			switch function := node.(type) {
			case *ast.FuncDecl:
				name, doc = function.Name.Name, function.Doc.Text()
			case *ast.FuncLit:
			default:
				return true
			}
			from, to := t.fset.Position(node.Pos()), t.fset.Position(node.End())
			if lines := to.Line - from.Line + 1; lines > functionLines && !strings.Contains(doc, longBecause) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s has %d lines, more than %d: split it, or say in its comment %q", s.path, from.Line, name, lines, functionLines, longBecause+" ..."))
			}
			return false // what is in it is counted with it
		})
	}
	return problems, nil
}

// stumbles lists the turns of phrase in a comment, sentence by sentence.
func stumbles(t *tree, s source, group *ast.CommentGroup) (problems []string) {
	text := strings.Join(strings.Fields(group.Text()), " ")
	for _, sentence := range strings.SplitAfter(text, ". ") {
		for _, turn := range turns {
			if found := turn.phrase.FindString(sentence); found != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: a comment says %q: %s", s.path, t.fset.Position(group.Pos()).Line, strings.TrimSpace(found), turn.instead))
			}
		}
	}
	return problems
}
