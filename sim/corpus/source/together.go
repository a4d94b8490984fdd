package source

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mistake is a set of changes that make one wrong program.
type Mistake struct {
	// Name is unique and can be a file's.
	Name    string
	Changes []Change
}

// chosen names the environment variable that says which mistake a program makes.
const chosen = "FENCELAB_MISTAKE"

// Programs make one of some mistakes each. Nearly all share one binary, which is built once: each
// function that mistakes change stands in it unchanged, begins by asking which mistake was chosen,
// and hands its arguments to the copy that has it. A mistake in anything but the body of a function
// has a binary of its own.
type Programs struct {
	root, pkg, dir, binary string
	apart                  map[string][]Change
}

// Together builds a package of the module at root, in dir, for all mistakes.
func Together(ctx context.Context, root, pkg, dir string, mistakes []Mistake) (*Programs, error) {
	p := &Programs{root: root, pkg: pkg, dir: dir, apart: map[string][]Change{}}
	files := map[string]*switched{}
	known := map[string]bool{}
	for _, m := range mistakes {
		if known[m.Name] {
			return nil, fmt.Errorf("two mistakes are called %s", m.Name)
		}
		known[m.Name] = true
		changed, err := Apply(root, m.Changes...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		variants := map[string][]variant{}
		for _, file := range slices.Sorted(maps.Keys(changed)) {
			if filepath.Ext(file) != ".go" {
				p.apart[m.Name] = m.Changes
				break
			}
			if files[file] == nil {
				if files[file], err = newSwitched(filepath.Join(root, file)); err != nil {
					return nil, err
				}
			}
			var only bool
			if variants[file], only = files[file].variants(changed[file]); !only {
				p.apart[m.Name] = m.Changes
			}
		}
		if p.apart[m.Name] == nil {
			for file, some := range variants { // one mistake adds once to each file
				files[file].add(m.Name, some)
			}
		}
	}
	overlay := map[string][]byte{}
	for file, s := range files { // each adds files of its own
		if s.empty() {
			continue
		}
		overlay[file] = s.text()
		overlay[filepath.Join(filepath.Dir(file), "fencelab_mistake.go")] =
			fmt.Appendf(nil, "package %s\n\nimport \"os\"\n\nvar fencelabMistake = os.Getenv(%q)\n", s.parsed.Name.Name, chosen)
	}
	var err error
	p.binary, err = compile(ctx, root, pkg, dir, "together", overlay)
	return p, err
}

// Command returns the command line of the program with a mistake, or of the right one if the
// mistake has no name; done removes a binary that was built for it alone.
func (p *Programs) Command(ctx context.Context, mistake string) (command []string, done func(), err error) {
	if changes := p.apart[mistake]; changes != nil {
		binary, err := Build(ctx, p.root, p.pkg, p.dir, mistake, changes...)
		return []string{binary}, func() { os.Remove(binary) }, err
	}
	return []string{"env", chosen + "=" + mistake, p.binary}, func() {}, nil
}

// switched is a file whose functions ask which mistake was chosen.
type switched struct {
	content []byte
	parsed  *ast.File
	// cases lists the mistakes that change a function, by its place among the declarations; copies
	// has the text of those functions with their mistakes.
	cases  map[int][]asked
	copies bytes.Buffer
}

// asked is a mistake that a function asks for, with the name of the copy that makes it.
type asked struct{ mistake, function string }

// variant is the copy of a function with one mistake: the function's place among the declarations,
// the copy's text, and the place of its name in that.
type variant struct {
	at   int
	text string
	name [2]int
}

func newSwitched(path string) (*switched, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
	return &switched{content: content, parsed: parsed, cases: map[int][]asked{}}, err
}

// cut returns the part of a file between two places.
func cut(content []byte, file *ast.File, from, to token.Pos) string {
	return string(content[from-file.FileStart : to-file.FileStart])
}

// variants compares the file with its content after a mistake. Only reports whether the two differ
// in nothing but the bodies of functions that can ask.
func (s *switched) variants(content []byte) (some []variant, only bool) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "", content, parser.SkipObjectResolution)
	if err != nil || len(parsed.Decls) != len(s.parsed.Decls) {
		return nil, false // the compiler says what is wrong with it
	}
	for i, decl := range s.parsed.Decls {
		other := parsed.Decls[i]
		if cut(s.content, s.parsed, decl.Pos(), decl.End()) == cut(content, parsed, other.Pos(), other.End()) {
			continue
		}
		f, ok := decl.(*ast.FuncDecl)
		g, same := other.(*ast.FuncDecl)
		if !ok || !same || !asks(f) || cut(s.content, s.parsed, f.Pos(), f.Body.Pos()) != cut(content, parsed, g.Pos(), g.Body.Pos()) {
			return nil, false
		}
		from := int(g.Name.Pos() - g.Pos())
		some = append(some, variant{i, cut(content, parsed, g.Pos(), g.End()), [2]int{from, from + len(g.Name.Name)}})
	}
	return some, true
}

// asks reports whether a function can hand all that it was given to another: each parameter and
// the receiver has a name, and no type is a parameter.
func asks(f *ast.FuncDecl) bool {
	if f.Body == nil || f.Type.TypeParams != nil || f.Recv == nil && (f.Name.Name == "init" || f.Name.Name == "main") {
		return false
	}
	named := func(fields *ast.FieldList) bool {
		return !slices.ContainsFunc(fields.List, func(field *ast.Field) bool {
			return len(field.Names) == 0 || slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return n.Name == "_" })
		})
	}
	if f.Recv != nil {
		receiver := f.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if _, plain := receiver.(*ast.Ident); !plain || !named(f.Recv) {
			return false
		}
	}
	return named(f.Type.Params)
}

// add lets some functions ask for a mistake.
func (s *switched) add(mistake string, some []variant) {
	for _, v := range some {
		name := fmt.Sprintf("%s_mistake%d", v.text[v.name[0]:v.name[1]], len(s.cases[v.at]))
		s.cases[v.at] = append(s.cases[v.at], asked{mistake, name})
		fmt.Fprintf(&s.copies, "\n%s%s%s\n", v.text[:v.name[0]], name, v.text[v.name[1]:])
	}
}

func (s *switched) empty() bool { return len(s.cases) == 0 }

// text is the file with the questions, each on the line on which its function's body begins, and
// the changed functions after all.
func (s *switched) text() []byte {
	var b bytes.Buffer
	written := s.parsed.FileStart
	for _, at := range slices.Sorted(maps.Keys(s.cases)) {
		f := s.parsed.Decls[at].(*ast.FuncDecl)
		b.WriteString(cut(s.content, s.parsed, written, f.Body.Lbrace+1))
		written = f.Body.Lbrace + 1
		b.WriteString(" switch fencelabMistake {")
		for _, c := range s.cases[at] {
			call := c.function + "(" + given(f) + ")"
			if f.Recv != nil {
				call = f.Recv.List[0].Names[0].Name + "." + call
			}
			if f.Type.Results != nil {
				call = "return " + call
			} else {
				call += "; return"
			}
			fmt.Fprintf(&b, " case %q: %s;", c.mistake, call)
		}
		b.WriteString(" };")
	}
	b.WriteString(cut(s.content, s.parsed, written, s.parsed.FileEnd))
	b.Write(s.copies.Bytes())
	return b.Bytes()
}

// given lists a function's parameters as they are handed on.
func given(f *ast.FuncDecl) string {
	var names []string
	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				names[len(names)-1] += "..."
			}
		}
	}
	return strings.Join(names, ", ")
}
