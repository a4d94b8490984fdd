package tidy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// packageComments lists packages without exactly one comment that says what the package is.
func packageComments(t *tree) (problems []string, err error) {
	packages := t.packages()
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		sources := packages[dir]
		// A package of tests only is introduced by one of them.
		if code := slices.DeleteFunc(slices.Clone(sources), source.isTest); len(code) > 0 {
			sources = code
		}
		var with []string
		for _, s := range sources {
			if s.file.Doc == nil {
				continue
			}
			with = append(with, s.path)
			name := s.file.Name.Name
			if name != "main" && !strings.HasPrefix(s.file.Doc.Text(), "Package "+name+" ") {
				problems = append(problems, fmt.Sprintf("%s: the package comment doesn't begin with %q, as every tool expects", s.path, "Package "+name))
			}
		}
		switch len(with) {
		case 0:
			problems = append(problems, fmt.Sprintf("%s: no package comment: a reader of the tree starts with what the package is", dir))
		case 1:
		default:
			problems = append(problems, fmt.Sprintf("%s: package comments in %s: one place says what the package is", dir, strings.Join(with, " and ")))
		}
	}
	return problems, nil
}
