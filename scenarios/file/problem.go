package file

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Problem is something wrong at one place of a file.
type Problem struct {
	// File is the name that the file was loaded under.
	File string
	// Line and Column are counted from 1, the column in characters.
	Line, Column int
	// Path is the field, such as spec.steps[2].do.crash.effect. It is empty
	// where the file as a whole or its syntax is meant.
	Path string
	// Text says what is wrong and what to write instead.
	Text string

	excerpt string // the line of the file
}

func (p Problem) Error() string {
	where := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		where += p.Path + ": "
	}
	return where + p.Text
}

// Excerpt shows the line, and under it a caret at the column. It is empty where
// the file has no such line.
func (p Problem) Excerpt() string {
	if strings.TrimSpace(p.excerpt) == "" {
		return ""
	}
	const width = 120 // of what is shown of a longer line
	line := []rune(strings.Map(visible, p.excerpt))
	column := min(max(p.Column, 1), len(line)+1)
	start := max(0, min(column-width*2/3, len(line)-width))
	shown := line[start:min(len(line), start+width)]
	pad := []rune(strings.Repeat(" ", column-1-start))
	for i := range pad {
		if shown[i] == '\t' {
			pad[i] = '\t' // so that the caret stands under its character
		}
	}
	number := fmt.Sprintf("%6d", p.Line)
	return fmt.Sprintf("%s | %s\n%6s | %s^", number, string(shown), "", string(pad))
}

// visible stands in for what a terminal would obey instead of showing it.
func visible(r rune) rune {
	if unprintable(r) {
		return '\ufffd'
	}
	return r
}

// Errors is everything that is wrong with a file, in the order of the file.
type Errors []Problem

// maxShown bounds what a file made of mistakes prints.
const maxShown = 100

func (e Errors) Error() string {
	var b strings.Builder
	for i, p := range e {
		if i == maxShown {
			fmt.Fprintf(&b, "and %d more problems\n", len(e)-maxShown)
			break
		}
		b.WriteString(p.Error() + "\n")
		if excerpt := p.Excerpt(); excerpt != "" {
			b.WriteString(excerpt + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// unknown says that a name is none of the valid ones, and which it might mean.
func unknown(what, name string, valid []string) string {
	text := fmt.Sprintf("unknown %s %s", what, phrase.Quote(name))
	switch nearest := phrase.Nearest(name, valid); {
	case nearest != "" && !sameButNumber(nearest, name):
		return text + fmt.Sprintf(": did you mean %s?", phrase.Quote(nearest))
	case len(valid) == 0:
		return text + ": there is none here"
	case len(valid) > 24:
		return text
	default:
		listed := make([]string, len(valid))
		for i, name := range valid {
			listed[i] = name
			if plain := phrase.Quote(name); plain != `"`+name+`"` {
				listed[i] = plain // hosts have the names that the file gives them
			}
		}
		return text + ": use one of " + strings.Join(listed, ", ")
	}
}

// sameButNumber reports whether two names differ in digits only. worker-3 is no
// mistyped worker-1.
func sameButNumber(a, b string) bool {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return -1
			}
			return r
		}, s)
	}
	return plain(a) == plain(b)
}
