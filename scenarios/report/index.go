package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
)

//go:embed index.html
var indexMarkup string

var indexPage = template.Must(template.New("index").Parse(indexMarkup))

// index is the page of an invocation, which leads to those of its runs.
type index struct {
	*campaign.Ledger
	Word, Policy string
	Style        template.CSS
	// Good says that all came out as expected.
	Good bool
	dir  string
}

// Ordered are the results: what is to be looked at comes first.
func (i index) Ordered() []*campaign.Entry {
	rank := map[campaign.Status]int{campaign.Failed: 0, campaign.Broken: 1, campaign.Unknown: 2, campaign.Passed: 3, campaign.Skipped: 4}
	return slices.SortedStableFunc(slices.Values(i.Results), func(a, b *campaign.Entry) int { return cmp.Compare(rank[a.Status], rank[b.Status]) })
}

// Look is the verdict in whose colours a status is shown.
func (i index) Look(s campaign.Status) invariant.Verdict {
	switch s {
	case campaign.Passed:
		return invariant.Held
	case campaign.Failed:
		return invariant.Violated
	}
	return invariant.Unknown
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
	if err := indexPage.Execute(&b, index{Ledger: l, Word: word(l), Policy: page.Policy(page.Style, ""), Style: template.CSS(page.Style), Good: good(l), dir: dir}); err != nil {
		return nil, fmt.Errorf("draw the index: %w", err)
	}
	return b.Bytes(), nil
}
