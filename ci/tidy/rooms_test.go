package tidy

import (
	"fmt"
	"go/doc"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// roomsPage has a row for each package: what it is for, which is the first sentence of its comment,
// and what it may import, which the layers say.
const roomsPage = "docs/rooms.md"

const roomsHead = `# The rooms

For people who change fencelab: what each package is for, and what it may import beside the standard
library and itself. ` + "`ci/tidy`" + ` writes this page from the packages' comments and from its layers, and fails
where an import breaks a layer. [code.md](code.md) shows the way through the house, and
[design.md](design.md) says why it is built so.

In the last column, ` + "`./`" + ` is the whole module, ` + "`DIR`" + ` is a package and all below it, and ` + "`DIR/.`" + ` the package alone.
Test tools that any test may use are left out.

| room | what it is for | may import | because |
|---|---|---|---|
`

// rooms writes the page.
func rooms(t *tree) (page string, problems []string) {
	var text strings.Builder
	text.WriteString(roomsHead)
	packages := t.packages()
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		what := ""
		for _, s := range packages[dir] {
			if s.file.Doc != nil {
				what = new(doc.Package).Synopsis(s.file.Doc.Text())
			}
		}
		l, ok := layerOf(layers, dir)
		if what == "" || !ok {
			problems = append(problems, dir+": has no comment, or no layer")
			continue
		}
		may := make([]string, 0, len(l.may))
		for _, m := range l.may {
			m = strings.TrimPrefix(m, "./")
			if m == "" {
				m = "./"
			}
			if !slices.Contains(may, "`"+m+"`") {
				may = append(may, "`"+m+"`")
			}
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", dir, strings.ReplaceAll(what, "|", `\|`), strings.Join(may, " "), l.why)
	}
	return text.String(), problems
}

func TestRooms(t *testing.T) {
	root, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, problems := rooms(root)
	for _, problem := range problems {
		t.Error(problem)
	}
	if *update {
		if err := os.WriteFile("../../"+roomsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("../../" + roomsPage); err != nil || string(got) != page {
		t.Errorf("%s isn't what comments and layers say (%v): run go test ./ci/tidy -update", roomsPage, err)
	}
}

// TestProductNeedsNoCI: what tests and builds this repository is nothing that its users need.
func TestProductNeedsNoCI(t *testing.T) {
	for _, l := range layers {
		for _, may := range l.may {
			if inCI := strings.HasPrefix(may, "./ci"); inCI && !under(l.dir, "ci") {
				t.Errorf("%s may import %s: ci is for this repository alone", l.dir, may)
			}
		}
	}
}
