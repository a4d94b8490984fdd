package cli

import (
	"strings"
	"testing"

	"github.com/fencelab/fencelab/controllers"
)

// TestWhatIsAModule: a package may bring its controllers in any of the forms that Main takes, and learns what else it gave.
func TestWhatIsAModule(t *testing.T) {
	for name, given := range map[string]any{
		"one": controllers.Module{}, "several": []controllers.Module{{}, {}},
		"a function": func() controllers.Module { return controllers.Module{} }, "a function of several": func() []controllers.Module { return nil },
	} {
		if _, err := modules([]any{given}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := modules([]any{func(int) controllers.Module { return controllers.Module{} }}); err == nil || !strings.Contains(err.Error(), "this is a func(int) controllers.Module") {
		t.Errorf("a function with an argument: %v", err)
	}
	if all, err := modules([]any{controllers.Module{}, []controllers.Module{{}, {}}}); err != nil || len(all) != 3 {
		t.Errorf("of three modules there are %d: %v", len(all), err)
	}
}
