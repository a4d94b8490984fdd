package systemtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
)

// Rules reads rules that are written as JSON, and names those by their position that have
// no name.
func Rules(t testing.TB, rules ...string) []fakebmc.Rule {
	t.Helper()
	named := make([]string, len(rules))
	for i, r := range rules {
		if named[i] = r; !strings.Contains(r, `"name"`) {
			named[i] = fmt.Sprintf(`{"name": "rule-%d", %s`, i+1, strings.TrimPrefix(r, "{"))
		}
	}
	all, err := fakebmc.ParseRules([]byte("[" + strings.Join(named, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
