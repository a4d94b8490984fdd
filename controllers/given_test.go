package controllers

import (
	"strings"
	"testing"
)

// TestModulesOf: a package may offer its controllers in any of the forms; any other form is
// refused.
func TestModulesOf(t *testing.T) {
	for name, c := range map[string]struct {
		given any
		want  int
	}{
		"one": {Module{}, 1}, "several": {[]Module{{}, {}}, 2},
		"a function": {func() Module { return Module{} }, 1}, "a function of several": {func() []Module { return make([]Module, 3) }, 3},
	} {
		if all, err := ModulesOf(c.given); err != nil || len(all) != c.want {
			t.Errorf("%s: there are %d, want %d: %v", name, len(all), c.want, err)
		}
	}
	if _, err := ModulesOf(func(int) Module { return Module{} }); err == nil || !strings.Contains(err.Error(), "this is a func(int) controllers.Module") {
		t.Errorf("a function with an argument: %v", err)
	}
}
