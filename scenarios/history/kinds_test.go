package history

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestEveryKindIsWhole: each constant that is a kind has a layer and a phrase.
func TestEveryKindIsWhole(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		of, _ := spec.Type.(*ast.Ident)
		value, _ := spec.Values[0].(*ast.BasicLit)
		if of == nil || of.Name != "Kind" || value == nil {
			return true
		}
		name, err := strconv.Unquote(value.Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if Kind(name).Layer() == "" {
			t.Errorf("the event %s has no layer in event.go: say who records it", name)
		}
		if phrases[Kind(name)] == "" {
			t.Errorf("the event %s has no phrase in event.go: say what a reader is told", name)
		}
		return true
	})
	if found < 30 {
		t.Errorf("event.go declares only %d kinds", found)
	}
}
