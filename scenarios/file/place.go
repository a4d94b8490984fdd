package file

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/fencelab/fencelab/scenarios"
)

// places are where a scenario has a field of a name: the paths of what it is a field of, each as
// its steps, with [] for any element of a list.
var places = sync.OnceValue(func() map[string][][]string {
	all := make(map[string][][]string)
	seen := make(map[reflect.Type]bool) // above: a step repeats steps
	var walk func(t reflect.Type, path []string)
	walk = func(t reflect.Type, path []string) {
		switch {
		case t.Kind() == reflect.Pointer:
			walk(t.Elem(), path)
			return
		case t.Kind() == reflect.Slice:
			walk(t.Elem(), append(path[:len(path):len(path)], "[]"))
			return
		case t.Kind() != reflect.Struct || seen[t] || reflect.PointerTo(t).Implements(jsonUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler):
			return
		}
		seen[t] = true
		defer delete(seen, t)
		for _, f := range fieldsOf(t) {
			all[f.name] = append(all[f.name], path)
			walk(f.typ, append(path[:len(path):len(path)], f.name))
		}
	}
	walk(reflect.TypeFor[scenarios.Scenario](), nil)
	return all
})

// placeOf returns where a misplaced field belongs in a scenario: the nearest such place, if any.
func placeOf(field, written string) (place string, known bool) {
	var at []string // the steps of written
	for step := range strings.FieldsFuncSeq(strings.ReplaceAll(written, "[", ".["), func(r rune) bool { return r == '.' }) {
		at = append(at, step)
	}
	best, near, alone := -1, []string(nil), false
	for _, path := range places()[field] {
		common := 0
		for common < min(len(at), len(path)) && (at[common] == path[common] || path[common] == "[]" && strings.HasPrefix(at[common], "[")) {
			common++
		}
		away := len(at) + len(path) - 2*common
		switch {
		case best < 0 || away < best:
			best, near, alone = away, path, true
		case away == best:
			alone = false
		}
	}
	if !alone || len(near) == 0 {
		return "", false
	}
	for i, step := range near {
		if step == "[]" && i < len(at) && strings.HasPrefix(at[i], "[") {
			step = at[i] // of the same list
		}
		if !strings.HasPrefix(step, "[") && i > 0 {
			place += "."
		}
		place += step
	}
	return place, true
}

// misplaced says how a line is indented that the parser stumbled over, if it continues nothing that
// is open above it.
func misplaced(lines []string, line int) (text string, is bool) {
	own := len(indentation(lines[line-1]))
	nearest, at := 0, 0        // the line above, and where what it says begins
	open := make(map[int]bool) // where lines can go on
	for i, lowest := line-1, math.MaxInt; i >= 1 && lowest > 0; i-- {
		says := strings.TrimSpace(lines[i-1])
		if says == "" || strings.HasPrefix(says, "#") {
			continue
		}
		indent := len(indentation(lines[i-1]))
		begins := indent
		if entry, dashed := strings.CutPrefix(says, "- "); dashed {
			begins += len(says) - len(strings.TrimLeft(entry, " "))
		}
		if nearest == 0 {
			nearest, at = i, begins
			if strings.HasSuffix(says, ":") && indent < own {
				return "", false // the line begins what that field has
			}
		}
		if indent < lowest {
			open[indent], open[begins], lowest = true, true, indent
		}
	}
	if nearest == 0 || open[own] || strings.TrimSpace(lines[line-1]) == "" {
		return "", false
	}
	return fmt.Sprintf("the line is indented by %d, and line %d by %d: indent it like one above", own, nearest, at), true
}

// unclosed is the line of the last bracket before a place that nothing closes, by a look that knows
// quotes and comments, but no other YAML.
func unclosed(lines []string, line, column int) (bracket byte, at int, is bool) {
	type opened struct {
		bracket byte
		line    int
	}
	var open []opened
	for i := range line {
		quote := byte(0)
		for j := 0; j < len(lines[i]) && (i < line-1 || j < column); j++ {
			switch c := lines[i][j]; {
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'':
				quote = c
			case c == '#' && (j == 0 || lines[i][j-1] == ' '):
				j = len(lines[i])
			case c == '[' || c == '{':
				open = append(open, opened{c, i + 1})
			case (c == ']' || c == '}') && len(open) > 0:
				open = open[:len(open)-1]
			}
		}
	}
	if len(open) == 0 {
		return 0, 0, false
	}
	last := open[len(open)-1]
	return last.bracket, last.line, true
}
