package file

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// lint reports what is allowed and still looks wrong.
func (d *document) lint(s *scenarios.Scenario, vocab Vocabulary) {
	if len(s.Spec.Steps) == 0 {
		d.bad("spec.steps", "are empty, so no story is told: the verdict will be unknown")
	}
	for i, c := range s.Spec.Controllers {
		d.shadowed(fmt.Sprintf("spec.controllers[%d].overlay", i), c.Overlay)
	}
	d.absent(s, vocab)
	keys := slices.Clone(vocab.Annotations) // set by controllers or steps
	var patches []string                    // which may set any
	for _, step := range s.Spec.Steps {
		if step.Do != nil && step.Do.Annotate != nil {
			keys = append(keys, step.Do.Annotate.Key)
		}
		if step.Do != nil && step.Do.Patch != nil {
			patches = append(patches, string(step.Do.Patch.Merge))
		}
		if step.Do != nil && step.Do.Create != nil {
			patches = append(patches, string(step.Do.Create.With))
		}
	}
	for i, step := range s.Spec.Steps {
		d.keys(fmt.Sprintf("spec.steps[%d]", i), &step, keys, patches, vocab)
	}
	for i, step := range s.Spec.Steps {
		path := fmt.Sprintf("spec.steps[%d]", i)
		if step.Do == nil {
			continue
		}
		// In the lab alone, a system under test may act on more.
		if set := step.Do.Annotate; set != nil && vocab.CheckHeeded != nil && vocab.CheckAnnotation(set.Key, set.Value) == nil && !slices.Equal(s.Spec.Worlds, []string{"lab"}) {
			if err := vocab.CheckHeeded(set.Key); err != nil {
				d.bad(path+".do.annotate.key", "%s", phrase.OneLine(err))
			}
		}
		if i == len(s.Spec.Steps)-1 {
			d.bad(path, "the last step does something, but nothing waits for its consequences: add a step that does")
		}
		if up := step.Do.PowerUp; up != nil && step.When.IsZero() && !slices.ContainsFunc(s.Spec.Steps[:i], func(s scenarios.Step) bool { return !s.When.IsZero() || s.Do != nil }) {
			d.bad(path+".do.powerUp", "nothing before this has switched %s off: a host that is on stays as it is", up.Host)
		}
		for _, op := range [...]*scenarios.AnnotateOp{step.Do.Annotate, step.Do.RemoveAnnotation} {
			if op != nil && misspelledHook(op.Key) {
				d.bad(path+".do", "%s is not a deletion hook: hooks begin with %s or %s", phrase.Quote(op.Key), hookDomains[0], hookDomains[1])
			}
		}
	}
}

// absent reports a health check that marks no Machine, and one whose marks no controller acts on.
func (d *document) absent(s *scenarios.Scenario, vocab Vocabulary) {
	check, acts := -1, false
	for i := range s.Spec.Controllers {
		c := &s.Spec.Controllers[i]
		part := cmp.Or(c.Plays, vocab.controller(c.Name).Plays, scenarios.PartOf(c))
		if part == "healthcheck" && c.Program == nil {
			check = i
		}
		acts = acts || part != "healthcheck" && part != "power"
	}
	switch at := fmt.Sprintf("spec.controllers[%d]", check); {
	case check < 0:
	case s.Spec.HealthCheck == nil && !vocab.controller(s.Spec.Controllers[check].Name).Brought: // else it has settings of its own
		d.bad(at, "it marks nobody without spec.healthCheck: add that, or leave it out")
	case !acts:
		d.bad(at, "no controller acts on what it marks: add one, such as remediation")
	}
}

// keys reports annotations that no controller or step sets, and values that mean nothing.
func (d *document) keys(path string, step *scenarios.Step, keys, patches []string, vocab Vocabulary) {
	if len(vocab.Annotations) == 0 {
		return
	}
	check := func(path, key string) {
		if key != "" && !slices.Contains(keys, key) && !slices.ContainsFunc(patches, func(p string) bool { return strings.Contains(p, key) }) {
			d.bad(path, "no controller or step sets %s%s", phrase.Quote(key), meant(key, keys))
		}
	}
	annotation := func(path string, t scenarios.Trigger) {
		if t.Event != string(history.FieldIs) {
			check(path+".key", t.Key)
		}
	}
	annotation(path+".when", step.When)
	several, field := step.When.List()
	for j, t := range several {
		annotation(fmt.Sprintf("%s.when.%s[%d]", path, field, j), t)
	}
	switch op := step.Do; {
	case op == nil:
	case op.RemoveAnnotation != nil:
		check(path+".do.removeAnnotation.key", op.RemoveAnnotation.Key)
	case op.Annotate != nil && vocab.CheckAnnotation != nil:
		if err := vocab.CheckAnnotation(op.Annotate.Key, op.Annotate.Value); err != nil {
			d.bad(path+".do.annotate.value", "%s", phrase.OneLine(err))
		}
	case op.AddFault != nil && vocab.DoubtFault != nil:
		rule := vocab.Fault()
		if json.Unmarshal(op.AddFault.Rule, rule) != nil {
			return // unreachable: it was loaded
		}
		for _, doubt := range vocab.DoubtFault(rule) {
			d.bad(path+".do.addFault.rule", "%s", doubt)
		}
	}
}

func meant(name string, names []string) string {
	if nearest := phrase.Nearest(name, names); nearest != "" {
		return fmt.Sprintf(": did you mean %s?", phrase.Quote(nearest))
	}
	return ""
}

// shadowed reports rules of an overlay that an earlier one always comes before.
func (d *document) shadowed(path string, rules []scenarios.Rule) {
	for i, rule := range rules {
		for j, earlier := range rules[:i] {
			covers := true
			for fact, value := range earlier.When { // order does not matter: all have to agree
				other, given := rule.When[fact]
				covers = covers && given && other == value
			}
			if covers {
				d.bad(fmt.Sprintf("%s[%d]", path, i), "is never reached: rule %d matches whenever this one does", j+1)
				break
			}
		}
	}
}

// hookDomains are the spellings of seed 003 that Cluster API acts on. It ignores two more in the
// seed.
var hookDomains = [...]string{
	"pre-drain.delete.hook.machine.cluster.x-k8s.io",
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io",
}

func misspelledHook(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return strings.Contains(domain, "hook.machine.cluster") && !slices.Contains(hookDomains[:], domain)
}
