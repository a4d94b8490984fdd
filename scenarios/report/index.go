package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/page"
)

//go:embed index.html
var indexMarkup string

var indexPage = template.Must(template.New("index").Parse(indexMarkup))

// index is the page of an invocation, which leads to those of its runs.
type index struct {
	*campaign.Ledger
	Word string
	dir  string
}

// Link is where the page of a run is, seen from the index; empty if it wasn't saved.
func (i index) Link(run *campaign.Shown) string {
	if run.Directory == "" {
		return ""
	}
	rel, err := filepath.Rel(i.dir, run.Directory)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(filepath.Join(rel, page.Name))
}

// Number counts from 1.
func (i index) Number(n int) int { return n + 1 }

// indexOf draws the page of the invocation whose reports are in dir.
func indexOf(l *campaign.Ledger, dir string) ([]byte, error) {
	var b bytes.Buffer
	if err := indexPage.Execute(&b, index{l, word(l), dir}); err != nil {
		return nil, fmt.Errorf("draw the index: %w", err)
	}
	return b.Bytes(), nil
}
