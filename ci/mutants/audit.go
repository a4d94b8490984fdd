package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/corpus"
	"github.com/fencelab/fencelab/sim/corpus/source"
)

// suspect is a wrong program whose excuses are audited.
type suspect struct {
	source.Mistake
	story string
}

// reason says why a guarantee excuses what right controllers do without.
type reason struct {
	// Guarantee is the one that does, and Story the one in which it does; empty for all.
	Guarantee string `json:"guarantee,omitempty"`
	Story     string `json:"story,omitempty"`
	// HeldUp must occur in the words that say what excuses it, and which party that held up; empty
	// matches any.
	HeldUp  string `json:"heldUp,omitempty"`
	Because string `json:"because"`
}

// audited is a hole, whose it is, and why it stays.
type audited struct {
	finding.Hole
	mistake, because string
}

// auditAll looks for excuses that right controllers do without: of each mutant, each known bug
// and each story with an overlay. It writes the table and fails if one has no reason.
func auditAll(ctx context.Context, all []Mutant, dir, only string, limit time.Duration, table string) error {
	reasons, err := readReasons("ci/mutants/excuses/reasons.yaml")
	if err != nil {
		return err
	}
	suspects := []suspect{{Mistake: source.Mistake{Name: "overlay"}}}
	for _, m := range all {
		suspects = append(suspects, suspect{m.mistake(), m.Story})
	}
	pairs, err := corpus.Load([]string{"scenarios/catalog/regression"}, objects.Vocabulary())
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if len(p.Changes) > 0 {
			suspects = append(suspects, suspect{source.Mistake{Name: p.Right.Metadata.Name, Changes: p.Changes}, p.Right.Metadata.Name})
		}
	}
	suspects = slices.DeleteFunc(suspects, func(s suspect) bool {
		return !isChosen(only, s.Name)
	})
	var mistakes []source.Mistake
	for _, s := range suspects {
		mistakes = append(mistakes, s.Mistake)
	}
	p, err := build(ctx, judgeOf, dir, mistakes)
	if err != nil {
		return err
	}

	began := time.Now()
	audits, errs := make([]*finding.Audit, len(suspects)), make([]error, len(suspects))
	found := make([][]audited, len(suspects))
	inParallel(ctx, len(suspects), func(i int) {
		audits[i], errs[i] = suspects[i].audit(ctx, p, limit)
		if errs[i] != nil {
			return
		}
		said := fmt.Sprintf("%-44s %4d schedules, something was excused in %d, %d that right controllers do without\n",
			suspects[i].Name, audits[i].Schedules, audits[i].Excused, len(audits[i].Holes))
		for _, hole := range audits[i].Holes {
			h := audited{hole, suspects[i].Name, because(reasons, &hole)}
			if found[i] = append(found[i], h); h.because == "" {
				said += fmt.Sprintf("UNEXPLAINED  %s in %s (%s): %s: %s; excused because %s\n", h.mistake, h.Scenario,
					strings.Join(h.Deviations, "; "), h.Guarantee, h.Sentence, strings.Join(h.HeldUp, "; "))
			}
		}
		fmt.Print(said)
	})
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}

	holes := slices.Concat(found...)
	schedules, excused, open := 0, 0, 0
	for _, a := range audits {
		schedules, excused = schedules+a.Schedules, excused+a.Excused
	}
	for _, h := range holes {
		if h.because == "" {
			open++
		}
	}
	fmt.Printf("%d wrong programs, %d schedules in %s: something was excused in %d of them, and right controllers did without in %d kinds, of which %d have no reason\n",
		len(suspects), schedules, time.Since(began).Round(time.Second), excused, len(holes), open)
	if table != "" && only == "" {
		if err := os.WriteFile(table, excuses(holes, len(suspects), schedules, excused), 0o644); err != nil {
			return err
		}
	}
	if open > 0 {
		return fmt.Errorf("%d excuses have no reason: mend the guarantee, or give the reason in ci/mutants/excuses/reasons.yaml", open)
	}
	return nil
}

// audit lets a suspect look for excuses; that of overlays changes nothing in the source.
func (s suspect) audit(ctx context.Context, p programs, limit time.Duration) (*finding.Audit, error) {
	args := []string{"-audit", "-limit", limit.String(), "-right", p.right, "-first", s.story}
	if len(s.Changes) == 0 {
		args = []string{"-audit", "-limit", (30 * time.Second).String()}
	}
	a := new(finding.Audit)
	if err := p.ask(ctx, s.Name, a, args...); err != nil {
		return nil, fmt.Errorf("audit the excuses of %s: %w", s.Name, err)
	}
	return a, nil
}

func readReasons(file string) ([]reason, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reasons []reason
	if err := yaml.UnmarshalStrict(data, &reasons); err != nil {
		return nil, fmt.Errorf("read the reasons of %s: %w", filepath.Base(file), err)
	}
	return reasons, nil
}

// because is the first reason that fits.
func because(reasons []reason, hole *finding.Hole) string {
	is := func(want, got string) bool { return want == "" || want == got }
	for _, r := range reasons {
		if is(r.Guarantee, hole.Guarantee) && is(r.Story, hole.Scenario) && strings.Contains(strings.Join(hole.HeldUp, "; "), r.HeldUp) {
			return r.Because
		}
	}
	return ""
}

// excuses is the document about them.
func excuses(holes []audited, suspects, schedules, excused int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Excuses that right controllers do without

For those who change the guarantees. A guarantee excuses lateness by the time that was lost,
and a deed by what had been decided before. Whether it excuses too much shows beside right
controllers: each wrong one, and fencelab's own in the same parts and the same schedule, are
judged twice, once as if nothing had held anybody up. What a wrong one is excused of that
the right one did without is a hole in a guarantee, or has a reason.

`+"`make excuses`"+` writes this page: of %d wrong programs (mistakes in the source, known bugs,
overlays) %d schedules were played. In %d of them something was excused that would have been
a violation. %s below.

| guarantee | mistake | story and deviation | what excuses it | why that is right |
|---|---|---|---|---|
`, suspects, schedules, excused, kinds(len(holes)))
	slices.SortStableFunc(holes, func(a, b audited) int { return strings.Compare(a.Guarantee+a.mistake, b.Guarantee+b.mistake) })
	for _, h := range holes {
		where := "`" + h.Scenario + "`"
		if len(h.Deviations) > 0 {
			where += ": `" + strings.Join(h.Deviations, "; ") + "`"
		}
		why := h.because
		if why == "" {
			why = "**no reason**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", h.Guarantee, cell(h.mistake), cell(where), cell(brief(h.HeldUp)), cell(why))
	}
	return b.Bytes()
}

// brief is the first of some, and how many more there are.
func brief(some []string) string {
	if len(some) < 2 {
		return strings.Join(some, "")
	}
	return fmt.Sprintf("%s (and %d more)", some[0], len(some)-1)
}

func kinds(n int) string {
	if n == 1 {
		return "The one kind that right controllers did without is"
	}
	return fmt.Sprintf("The %d kinds that right controllers did without are", n)
}
