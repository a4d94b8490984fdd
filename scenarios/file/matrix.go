package file

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"go.yaml.in/yaml/v3"
)

// Values are values of parameters as the command line has them. They take the place of
// those of the matrix.
type Values map[string]string

// The types of parameters.
var parameterTypes = []string{"text", "duration", "number", "boolean"}

// Bounds of a matrix.
const (
	maxCells    = 500
	maxCellName = 200
)

const parameterNamePattern = `^[a-z][A-Za-z0-9]*$`

var (
	parameterName = regexp.MustCompile(parameterNamePattern)
	// cellName matches the name of a cell's scenario.
	cellName   = regexp.MustCompile(strings.TrimSuffix(dnsLabelPattern, "$") + `(\.[a-z][A-Za-z0-9]*=[A-Za-z0-9][-.A-Za-z0-9]*(,[a-z][A-Za-z0-9]*=[A-Za-z0-9][-.A-Za-z0-9]*)*)?$`)
	unnameable = regexp.MustCompile(`[^A-Za-z0-9.]+`)
)

// cell is one scenario of a file: the values of its parameters, by name, and those
// among them by which it is called, in the order of the file.
type cell struct {
	values map[string]any
	called []string
}

// id is the cell's part of its scenario's name: mode=hard,outage=5s.
func (c *cell) id() string {
	var parts []string
	for _, name := range c.called {
		parts = append(parts, name+"="+nameable(c.values[name]))
	}
	return strings.Join(parts, ",")
}

// nameable is a value as it stands in the name of a cell, where a shell and a file system
// take every character for itself.
func nameable(value any) string {
	return strings.Trim(unnameable.ReplaceAllString(textOf(value), "-"), "-.")
}

// textOf is a value as a file would have it.
func textOf(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// nodeOf is a value in the place of a reference.
func nodeOf(value any, at *yaml.Node) *yaml.Node {
	tag := "!!str"
	switch value := value.(type) {
	case bool:
		tag = "!!bool"
	case float64:
		tag = "!!int"
		if value != float64(int64(value)) {
			tag = "!!float"
		}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: textOf(value), Line: at.Line, Column: at.Column}
}

// matrix are the parameters and the matrix of a file, and what the command line says.
type matrix struct {
	doc        *document
	Parameters []scenarios.Parameter
	Matrix     scenarios.Matrix
	given      Values
}

// cells are the scenarios that a document is to become, in the order of the file: one
// without values if it has no parameters. Whatever is wrong is reported to the document.
func (d *document) cells(given Values) []cell {
	m := matrix{doc: d, given: given}
	for path, into := range map[string]any{"parameters": &m.Parameters, "matrix": &m.Matrix} { // order does not matter: problems are sorted
		if n := d.nodes[path]; n != nil {
			decoder{doc: d, strict: true}.value(n, reflect.ValueOf(into).Elem(), path)
		}
	}
	if len(d.problems) == 0 {
		m.declarations()
	}
	if len(d.problems) > 0 {
		return nil
	}
	return m.named(m.combine())
}

func parameterPath(i int) string { return fmt.Sprintf("parameters[%d]", i) }

// declarations checks the parameters themselves.
func (m *matrix) declarations() {
	for i := range m.Parameters {
		p, at := &m.Parameters[i], parameterPath(i)
		bad := func(field, format string, args ...any) { m.doc.bad(at+field, format, args...) }
		if !parameterName.MatchString(p.Name) {
			bad(".name", "%s is not a valid name: use letters and digits, beginning with a lower-case letter", phrase.Quote(p.Name))
		}
		if first := slices.IndexFunc(m.Parameters, func(other scenarios.Parameter) bool { return other.Name == p.Name }); first < i {
			bad(".name", "%s is listed twice, first in %s", phrase.Quote(p.Name), parameterPath(first))
		}
		if !slices.Contains(parameterTypes, p.Type) {
			bad(".type", "%s", unknown("type", p.Type, parameterTypes))
			continue
		}
		if p.Default != nil {
			if why := refuses(p, p.Default); why != "" {
				bad(".default", "%s", why)
			}
		}
	}
}

// refuses says why a value isn't of the parameter's type; empty if it is.
func refuses(p *scenarios.Parameter, value any) string {
	of := true
	switch p.Type {
	case "duration":
		text, isText := value.(string)
		_, err := scenarios.ParseDuration(text)
		of = isText && err == nil
	case "number":
		_, of = value.(float64)
	case "boolean":
		_, of = value.(bool)
	default:
		_, of = value.(string)
	}
	if of {
		return ""
	}
	example := map[string]string{"text": "a text", "duration": "a duration such as 20s", "number": "a number", "boolean": "true or false"}[p.Type]
	return fmt.Sprintf("%s where %s is expected", phrase.Quote(textOf(value)), example)
}

// given makes a value of a text of the command line.
func given(p *scenarios.Parameter, text string) any {
	switch p.Type {
	case "number":
		if x, ok := number(&yaml.Node{Kind: yaml.ScalarNode, Value: text}); ok {
			return x
		}
	case "boolean":
		if text == "true" || text == "false" {
			return text == "true"
		}
	}
	return text
}

// combine makes the cells of the matrix.
func (m *matrix) combine() []cell {
	fixed := map[string]any{} // by the command line
	for i := range m.Parameters {
		p := &m.Parameters[i]
		text, ok := m.given[p.Name]
		if !ok {
			continue
		}
		fixed[p.Name] = given(p, text)
		if why := refuses(p, fixed[p.Name]); why != "" {
			m.doc.bad(parameterPath(i), "--set %s=%s: %s", p.Name, phrase.Shorten(text), why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Matrix.Cross)) {
		at := join("matrix.cross", name)
		m.row(at, name, m.Matrix.Cross[name]...)
		if len(m.Matrix.Cross[name]) == 0 {
			m.doc.bad(at, "is empty: give it values, or leave it out")
		}
	}
	if m.doc.nodes["matrix"] != nil && len(m.Matrix.Cross) == 0 {
		m.doc.bad("matrix", "has no cells: give it cross")
	}
	if len(m.doc.problems) > 0 {
		return nil
	}
	crossed := []map[string]any{{}}
	for _, p := range m.Parameters {
		values := m.Matrix.Cross[p.Name]
		if len(values) == 0 {
			continue
		}
		if value, given := fixed[p.Name]; given {
			values = []any{value}
		}
		var next []map[string]any
		for _, before := range crossed {
			for _, value := range values {
				row := maps.Clone(before)
				row[p.Name] = value
				next = append(next, row)
			}
		}
		if crossed = next; len(crossed) > maxCells {
			m.doc.bad("matrix.cross", "has more than %d cells: split it", maxCells)
			return nil
		}
	}
	var cells []cell
	for _, row := range crossed {
		cells = append(cells, m.fill(row, fixed))
	}
	return cells
}

// row checks values that the matrix gives to a parameter.
func (m *matrix) row(at, name string, values ...any) {
	i := slices.IndexFunc(m.Parameters, func(p scenarios.Parameter) bool { return p.Name == name })
	if i < 0 {
		m.doc.bad(at, "%s", unknown("parameter", name, m.names()))
		return
	}
	for j, value := range values {
		path := at
		if m.doc.nodes[at].Kind == yaml.SequenceNode {
			path = fmt.Sprintf("%s[%d]", at, j)
		}
		if why := refuses(&m.Parameters[i], value); why != "" {
			m.doc.bad(path, "%s", why)
		} else if slices.Index(values, value) < j {
			m.doc.bad(path, "%s is listed twice", phrase.Quote(textOf(value)))
		}
	}
}

func (m *matrix) names() []string {
	var names []string
	for _, p := range m.Parameters {
		names = append(names, p.Name)
	}
	return names
}

// fill makes a cell of a row.
func (m *matrix) fill(row, fixed map[string]any) cell {
	c := cell{values: map[string]any{}}
	for i, p := range m.Parameters {
		value, called := row[p.Name]
		if set, given := fixed[p.Name]; given {
			value, called = set, true
		}
		if called {
			c.called = append(c.called, p.Name)
		} else if value = p.Default; value == nil {
			m.doc.bad(parameterPath(i), "%s lacks a value in some cell: give it a default, or give each cell of the matrix a value", phrase.Quote(p.Name))
		}
		c.values[p.Name] = value
	}
	return c
}

// named checks the names of the cells. What the command line has made equal is one.
func (m *matrix) named(cells []cell) []cell {
	var kept []cell
	for _, c := range cells {
		if slices.ContainsFunc(c.called, func(name string) bool { return nameable(c.values[name]) == "" }) {
			m.doc.bad("matrix", "a value without letters or digits can't be part of a name")
			continue
		}
		id := c.id()
		i := slices.IndexFunc(kept, func(other cell) bool { return other.id() == id })
		switch {
		case len(id) > maxCellName:
			m.doc.bad("matrix", "the name of the cell %s has more than %d characters", phrase.Shorten(id), maxCellName)
		case i < 0:
			kept = append(kept, c)
		case !maps.Equal(kept[i].values, c.values):
			m.doc.bad("matrix", "two cells would be named %s: their values must differ in letters, digits or dots", phrase.Quote(id))
		case len(m.given) == 0:
			m.doc.bad("matrix", "the cell %s is listed twice", phrase.Quote(id))
		}
	}
	return kept
}
