package conform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/report"
)

// skipped stands in the place of a verdict for a story in which the system has no part.
const skipped invariant.Verdict = "skipped"

// Report is conformance.json, from which conformance.md is made.
type Report struct {
	// Verdict is that of all stories together.
	Verdict invariant.Verdict `json:"verdict"`
	// Partial says that a filter left some stories of the set out.
	Partial  bool     `json:"partial,omitempty"`
	Fencelab string   `json:"fencelab"`
	System   System   `json:"system"`
	Lab      string   `json:"lab"`
	Counts   Counts   `json:"counts"`
	Results  []Result `json:"results"`
}

// System identifies the system under test.
type System struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Release is the user's name for it, or the release that its file says it was tried with.
	Release string `json:"release,omitempty"`
	// Digest is the digest of its file, and Files are the files that it runs.
	Digest string `json:"digest"`
	Files  []File `json:"files"`
}

// File is one that ran, with its SHA-256.
type File struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Counts holds the number of stories by result.
type Counts struct {
	Held     int `json:"held"`
	Violated int `json:"violated"`
	Unknown  int `json:"unknown"`
	Skipped  int `json:"skipped"`
}

// Result is the result of one story.
type Result struct {
	Story string `json:"story"`
	Topic string `json:"topic"`
	// Digest is the SHA-256 of the story's file.
	Digest  string            `json:"digest"`
	Verdict invariant.Verdict `json:"verdict"`
	// Guarantee is the one that was broken, and Reason says how, or why there is no verdict.
	Guarantee string  `json:"guarantee,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`
	// History is the digest of what happened, and Directory where all of that is.
	History   string `json:"history,omitempty"`
	Directory string `json:"directory,omitempty"`
}

// judge adds up. Only stories that were played count, and there has to be one.
func (r *Report) judge() {
	r.Counts = Counts{}
	for i := range r.Results {
		switch r.Results[i].Verdict {
		case invariant.Held:
			r.Counts.Held++
		case invariant.Violated:
			r.Counts.Violated++
		case skipped:
			r.Counts.Skipped++
		default:
			r.Counts.Unknown++
		}
	}
	switch {
	case r.Counts.Violated > 0:
		r.Verdict = invariant.Violated
	case r.Counts.Unknown > 0 || r.Counts.Held == 0:
		r.Verdict = invariant.Unknown
	default:
		r.Verdict = invariant.Held
	}
}

// String says it in a line.
func (c Counts) String() string {
	return fmt.Sprintf("%d held, %d violated, %d unknown, %d skipped", c.Held, c.Violated, c.Unknown, c.Skipped)
}

// about says what is tested.
func about(s *scenarios.System, path, release string) (System, error) {
	data, err := file.ReadFile(path)
	if err != nil {
		return System{}, err
	}
	if release == "" && s.About != nil {
		release = strings.Join(s.About.Tried, "; ")
	}
	ran, err := files(s)
	return System{Name: s.Metadata.Name, Description: s.Metadata.Description, Release: release, Digest: digestOf(data), Files: ran}, err
}

// save writes the report into a directory.
func (r *Report) save(dir string) error {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetIndent("", "  ")
	to.SetEscapeHTML(false)
	if err := to.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	for name, data := range map[string][]byte{"conformance.json": b.Bytes(), "conformance.md": r.page()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return nil
}

// page is conformance.md.
func (r *Report) page() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n%s\n\n", report.Cell(r.System.Name), r.Verdict, report.Cell(r.System.Description))
	fmt.Fprintf(&b, "The stories of [fencelab](https://github.com/fencelab/fencelab)'s conformance set: %s.\n", r.Counts)
	if r.Partial {
		b.WriteString("This is a part of the set.\n")
	}
	b.WriteString("\n| | |\n|---|---|\n")
	row := func(what, value string) { fmt.Fprintf(&b, "| %s | %s |\n", what, value) }
	if r.System.Release != "" {
		row("release", report.Cell(r.System.Release))
	}
	row("its file", "sha256:"+r.System.Digest)
	for _, f := range r.System.Files {
		row(report.Cell(f.Name), "sha256:"+f.Digest)
	}
	row("fencelab", report.Cell(r.Fencelab))
	row("lab", report.Cell(r.Lab))
	b.WriteString("\n| story | about | verdict | why | sha256 of the story |\n|---|---|---|---|---|\n")
	for i := range r.Results {
		t := &r.Results[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.12s |\n", report.Cell(t.Story), report.Cell(t.Topic), t.Verdict, report.Cell(phrase.FirstLine(t.Reason)), t.Digest) // conformance.json has all of it
	}
	return []byte(b.String())
}
