package file_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/file"
)

// The cells of a matrix, in order, and what the command line makes of them.
func TestCells(t *testing.T) {
	data := corpus(t, "good/matrix.yaml")["testdata/good/matrix.yaml"]
	for _, tc := range []struct {
		name  string
		given file.Values
		want  []string // or what is wrong
	}{
		{"as they are", nil, []string{"matrix.kind=Machine,pause=5s", "matrix.kind=Machine,pause=10s", "matrix.kind=BareMetalHost,pause=5s", "matrix.kind=BareMetalHost,pause=10s"}},
		{"one value for all of a dimension", file.Values{"pause": "7s"}, []string{"matrix.kind=Machine,pause=7s", "matrix.kind=BareMetalHost,pause=7s"}},
		{"what is not in the matrix", file.Values{"times": "3", "kind": "Machine", "how": "cut"}, []string{"matrix.kind=Machine,pause=5s,times=3,how=cut", "matrix.kind=Machine,pause=10s,times=3,how=cut"}},
		{"no duration", file.Values{"pause": "5"}, []string{`--set pause=5: "5" where a duration such as 20s is expected`}},
		{"no number", file.Values{"times": "many"}, []string{`--set times=many: "many" where a number is expected`}},
		{"wrong in the spec", file.Values{"how": "cat"}, []string{`unknown field "cat": did you mean "cut"?`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cells, err := file.LoadCells("s.yaml", data, vocabulary(), tc.given)
			if err != nil {
				if !strings.Contains(err.Error(), tc.want[0]) {
					t.Errorf("got  %v\nwant %s", err, tc.want[0])
				}
				return
			}
			var names []string
			for _, s := range cells {
				names = append(names, s.Metadata.Name)
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("got  %q\nwant %q", names, tc.want)
			}
		})
	}
}

// A file with a matrix is several scenarios wherever several are read, and none where one
// is needed.
func TestCellsOfFiles(t *testing.T) {
	path := filepath.Join("testdata", "good", "matrix.yaml")
	all, err := file.LoadFiles([]string{path}, vocabulary(), nil)
	if err != nil || len(all) != 4 {
		t.Errorf("%d scenarios, %v; want 4", len(all), err)
	}
	if _, err := file.LoadFiles([]string{path}, vocabulary(), file.Values{"puase": "5s"}); err == nil || !strings.Contains(err.Error(), `--set puase: unknown parameter "puase": did you mean "pause"?`) {
		t.Errorf("a value of no parameter: %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Load(path, data, vocabulary()); err == nil || !strings.Contains(err.Error(), "its matrix makes 4 scenarios, but exactly one is needed here") {
		t.Errorf("one of several: %v", err)
	}
}
