package file

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

var (
	digest        = regexp.MustCompile(`^[0-9a-f]{16}$`)
	deviationStep = regexp.MustCompile(`^[^/\s]+(/[^/\s]+)+/[1-9][0-9]{0,8}$`)
)

// plan checks what a plan has beyond a scenario.
func (v *validator) plan(p *scenarios.Plan) {
	if !digest.MatchString(p.Digest) {
		v.Bad("digest", "%s is not a digest: a digest has 16 hexadecimal digits", phrase.Quote(p.Digest))
	}
	for i, d := range p.Deviations {
		path := fmt.Sprintf("deviations[%d]", i)
		if first := slices.IndexFunc(p.Deviations, func(other scenarios.Deviation) bool { return other.Step == d.Step }); first < i {
			v.Bad(path+".step", "%s already deviates in deviations[%d]: list each step once", phrase.Quote(d.Step), first)
		}
		deed, err := scenarios.ParseDeed(d.Step)
		switch {
		case !scenarios.NamesDeed(d.Step):
			if !deviationStep.MatchString(d.Step) {
				v.Bad(path+".step", "%s does not name a step: write ACTOR/CLASS/N, with N counted from 1", phrase.Quote(d.Step))
			}
		case err != nil:
			v.Bad(path+".step", "%s", phrase.OneLine(err))
		case d.Fault != "" && !slices.Contains(deed.Faults(), d.Fault):
			v.Bad(path+".fault", "the fault %s does not apply to such a step", d.Fault)
		}
		v.deed(path+".deed", d.Deed)
		v.deed(path+".afterDeed", d.AfterDeed)
		if first := slices.IndexFunc(p.Deviations, func(other scenarios.Deviation) bool { return d.Deed != "" && other.Deed == d.Deed }); first >= 0 && first < i {
			v.Bad(path+".deed", "%s already deviates in deviations[%d]: list each deed once", phrase.Quote(d.Deed), first)
		}
		var faults []string
		for _, fault := range scenarios.StepFaults() {
			faults = append(faults, string(fault))
		}
		v.OneOf(path+".fault", "fault", string(d.Fault), faults)
		switch {
		case d.After != "":
			v.order(path, d)
		case d.AfterDeed != "":
			v.Bad(path+".afterDeed", "names the step that after has by its number: write after as well")
		case d.Delay == 0 && d.Fault == "":
			v.Bad(path, "is not a deviation: give it a delay or a fault")
		case d.Delay == 0 && d.Fault.HasExtent():
			v.Bad(path, "does not say by how much: give it a delay as well as %s", d.Fault)
		}
	}
	if len(v.doc.problems) > 0 {
		return
	}
	// Compiling it once more finds what Compile would have to decide.
	again, err := scenarios.Compile(&scenarios.Scenario{Metadata: p.Metadata, Spec: p.Spec}, p.Seed)
	if err != nil {
		v.Bad("spec", "%s", phrase.OneLine(err))
		return
	}
	again.Version, again.Digest, again.Deviations, again.Shrunk = p.Version, p.Digest, p.Deviations, p.Shrunk
	if before, after := p.Text(), again.Text(); !bytes.Equal(before, after) {
		v.Bad("spec", "leaves something open, which a plan must not: %s", firstDifference(before, after))
	}
}

// deed checks the name of a step by its action, if there is one.
func (v *validator) deed(path, deed string) {
	if _, err := scenarios.ParseDeed(deed); deed != "" && (err != nil || !scenarios.NamesDeed(deed)) {
		v.Bad(path, "%s does not name a deed: write ACTOR/VERB OBJECT/N, as in remediation/delete Node/worker-1/1", phrase.Quote(deed))
	}
}

// order checks a deviation whose step waits for another one.
func (v *validator) order(path string, d scenarios.Deviation) {
	switch {
	case scenarios.NamesDeed(d.Step):
		v.Bad(path+".after", "only a step of the simulator can wait for another one: in the lab, give it a delay")
	case scenarios.NamesDeed(d.After) || !deviationStep.MatchString(d.After):
		v.Bad(path+".after", "%s does not name a step: write ACTOR/CLASS/N, with N counted from 1", phrase.Quote(d.After))
	case d.After == d.Step, d.AfterDeed != "" && d.AfterDeed == d.Deed:
		v.Bad(path+".after", "a step can't wait for itself")
	case d.Delay == 0:
		v.Bad(path, "does not say how long the step waits at most: give it a delay as well")
	case d.Fault.HasExtent():
		v.Bad(path+".fault", "the delay can't be that of %s and of the wait: give it one of the two", d.Fault)
	}
}

// firstDifference shows the first line of a plan that compiling it adds or
// changes.
func firstDifference(before, after []byte) string {
	lines := bytes.Split(after, []byte("\n"))
	for i, old := range bytes.Split(before, []byte("\n")) {
		if i < len(lines) && !bytes.Equal(old, lines[i]) {
			return "write " + strconv.Quote(string(bytes.TrimSpace(lines[i])))
		}
	}
	return "write the defaults out"
}
