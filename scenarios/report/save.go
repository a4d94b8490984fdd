package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// ledgerJSON is report.json.
func ledgerJSON(l *campaign.Ledger) ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetIndent("", "  ")
	if err := to.Encode(l); err != nil {
		return nil, fmt.Errorf("write the report of the invocation: %w", err)
	}
	return b.Bytes(), nil
}

// saveLedger writes the files of an invocation.
func saveLedger(l *campaign.Ledger, dir string) error {
	report, err := ledgerJSON(l)
	if err != nil {
		return err
	}
	junit, err := junitOf(l)
	if err != nil {
		return err
	}
	index, err := indexOf(l, dir)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"report.json": report, "junit.xml": junit, "summary.md": summaryOf(l), "annotations.txt": annotationsOf(l), "index.html": index} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("save the report of the invocation: %w", err)
		}
	}
	return nil
}
