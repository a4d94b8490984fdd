package controllers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Rule is a line of an overlay. It makes a controller wrong on purpose, as data, without the
// controller's knowledge.
type Rule struct {
	// When maps names of facts to required values. A fact that is left out may have any value.
	When map[string]any `json:"when"`
	// Then is the action to take instead of what the controller would do, or Panic.
	Then string `json:"then"`
}

// Panic is the action of an overlay that makes any controller panic.
const Panic = "Panic"

// Overlaid returns decide with rules before it: the first rule whose facts all match decides, and
// decide itself if none does. S is a struct of facts, named by their JSON tags, and actions lists
// every A. The error names every unknown fact, value and action.
func Overlaid[S any, A ~string](decide func(S) A, actions []A, rules []Rule) (func(S) A, error) {
	if len(rules) == 0 {
		return decide, nil
	}
	type fact struct {
		field int
		want  reflect.Value
	}
	type line struct {
		facts []fact
		then  A
	}
	var lines []line
	var problems []error
	state, names := reflect.TypeFor[S](), factNames[S]()
	for i, rule := range rules {
		problem := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("rule %d: "+format, append([]any{i + 1}, args...)...))
		}
		l := line{then: A(rule.Then)}
		if rule.Then != Panic && !slices.Contains(actions, l.then) {
			problem("there is no action %q; %s", rule.Then, suggest(rule.Then, actions))
		}
		for _, name := range slices.Sorted(maps.Keys(rule.When)) {
			field := slices.Index(names, name)
			if field < 0 {
				problem("there is no fact %q; %s", name, suggest(name, names))
				continue
			}
			want := reflect.New(state.Field(field).Type)
			if err := convert(rule.When[name], want.Interface()); err != nil {
				problem("the fact %s can't be %v: %w", name, rule.When[name], err)
				continue
			}
			l.facts = append(l.facts, fact{field, want.Elem()})
		}
		lines = append(lines, l)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return func(s S) A {
		v := reflect.ValueOf(s)
	next:
		for _, l := range lines {
			for _, f := range l.facts {
				if !v.Field(f.field).Equal(f.want) {
					continue next
				}
			}
			if l.then == Panic {
				panic("an overlay wants it to")
			}
			return l.then
		}
		return decide(s)
	}, nil
}

// convert converts a value from JSON or YAML to a fact's type.
func convert(value, into any) error {
	if value == nil {
		return errors.New("leave it out if it may have any value")
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("it is a %s", wrong.Type)
		}
		return err
	}
	return nil
}

// factNames returns the JSON names of a state's fields, in order.
func factNames[S any]() []string {
	var names []string
	for i, t := 0, reflect.TypeFor[S](); i < t.NumField(); i++ {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// suggest names the nearest name and lists all names.
func suggest[S ~string](name string, names []S) string {
	all := make([]string, len(names))
	nearest, least := "", len(name)/2+1
	for i, n := range names {
		all[i] = string(n)
		if d := distance(strings.ToLower(name), strings.ToLower(all[i])); d < least {
			nearest, least = all[i], d
		}
	}
	known := "known are " + strings.Join(all, ", ")
	if nearest == "" {
		return known
	}
	return fmt.Sprintf("did you mean %s? %s", nearest, known)
}

// distance is the number of letters to add, drop or change between two words
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
