package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// leadsShown bounds how many leads are printed.
const leadsShown = 25

// besideIt is where a report has that of its reference.
const besideIt = "reference"

// Lead implements campaign.Sink: it saves a run with a new lead, and the reference beside it.
func (c *Console) Lead(o, reference *play.Outcome) (where string, err error) {
	dir := c.Dir
	if dir == "" {
		dir = "out"
	}
	dir = filepath.Join(dir, "leads", fmt.Sprintf("%s-%s-%s", o.Plan.Metadata.Name, c.World, o.Plan.ID()))
	if err := Save(reference, filepath.Join(dir, besideIt), ""); err != nil {
		return "", err
	}
	return filepath.Join(dir, "report.html"), Save(o, dir, c.Replay(dir))
}

// Leads implements campaign.Sink: it prints the leads, the strangest first.
func (c *Console) Leads(all *leads.All, fresh []*leads.Group, known int) {
	text := "leads: " + phrase.Count(len(fresh), "difference") + " from the reference in " + phrase.Count(all.Compared, "run") + " that held"
	if known > 0 {
		text += fmt.Sprintf(", and %d accepted", known)
	}
	if all.Apart > 0 {
		text += fmt.Sprintf("; %s had nothing to be compared with", phrase.Count(all.Apart, "run"))
	}
	c.Print("%s\n", text)
	for i, g := range fresh {
		if i == leadsShown {
			c.Print("  and %d more\n", len(fresh)-i)
			break
		}
		c.Print("  %s\n", g)
		if i == 0 || g.Where != fresh[i-1].Where {
			c.Print("    %s, and %s/report.html beside it\n", g.Where, besideIt)
		}
	}
}

// Saved finds the runs of the same plans among those that were saved in a directory, as references.
// It returns nil for a plan without one, and for one that didn't hold.
func Saved(dir, world string) func(context.Context, *scenarios.Plan) (*play.Outcome, error) {
	return func(_ context.Context, plan *scenarios.Plan) (*play.Outcome, error) {
		of := filepath.Join(dir, fmt.Sprintf("%s-%s-%s", plan.Metadata.Name, world, plan.ID()))
		data, err := os.ReadFile(filepath.Join(of, "report.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		var came struct {
			Verdict invariant.Verdict `json:"verdict"`
		}
		if err == nil {
			err = json.Unmarshal(data, &came)
		}
		if err == nil {
			data, err = os.ReadFile(filepath.Join(of, "history.jsonl"))
		}
		if err != nil {
			return nil, fmt.Errorf("read the reference of %s: %w", plan.Metadata.Name, err)
		}
		h, err := history.Read(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(of, "history.jsonl"), err)
		}
		if came.Verdict != invariant.Held {
			return nil, nil
		}
		return &play.Outcome{Plan: plan, History: h, World: world}, nil
	}
}
