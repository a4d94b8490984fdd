package tidy

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// argoWorkflow has the fields of Argo's workflows that ours use: any other one is a mistake.
type argoWorkflow struct {
	APIVersion string                        `json:"apiVersion"`
	Kind       string                        `json:"kind"`
	Metadata   struct{ GenerateName string } `json:"metadata"`
	Spec       struct {
		Entrypoint string         `json:"entrypoint"`
		Volumes    []argoVolume   `json:"volumes"`
		Templates  []argoTemplate `json:"templates"`
	} `json:"spec"`
}

type argoVolume struct {
	Name                  string `json:"name"`
	PersistentVolumeClaim struct {
		ClaimName string `json:"claimName"`
	} `json:"persistentVolumeClaim"`
}

type argoParameters struct {
	Parameters []struct{ Name, Value string } `json:"parameters"`
}

type argoTemplate struct {
	Name          string         `json:"name"`
	Inputs        argoParameters `json:"inputs"`
	RetryStrategy *struct {
		Limit      int    `json:"limit"`
		Expression string `json:"expression"`
	} `json:"retryStrategy"`
	Steps [][]struct {
		Name         string                       `json:"name"`
		Template     string                       `json:"template"`
		WithSequence *struct{ Start, End string } `json:"withSequence"`
		Arguments    argoParameters               `json:"arguments"`
	} `json:"steps"`
	Container *struct {
		Image        string                             `json:"image"`
		Command      []string                           `json:"command"`
		Args         []string                           `json:"args"`
		VolumeMounts []struct{ Name, MountPath string } `json:"volumeMounts"`
	} `json:"container"`
}

var (
	placeholder = regexp.MustCompile(`\{\{(.*?)\}\}`)
	// shardsOf finds which shard of how many a command plays, and sequence how many GNU parallel
	// plays.
	shardsOf = regexp.MustCompile(`--shard (\S+)/([0-9]+)`)
	sequence = regexp.MustCompile(`\$\(seq ([0-9]+)\)`)
	shell    = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
)

// lintArgo says what is wrong with a workflow of Argo's that plays shards.
func lintArgo(text []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var w argoWorkflow
	if err := yaml.UnmarshalStrict(text, &w); err != nil {
		return []string{err.Error()}
	}
	if w.APIVersion != "argoproj.io/v1alpha1" || w.Kind != "Workflow" || w.Metadata.GenerateName == "" {
		say("it is no Workflow that can be created twice: %s %s", w.APIVersion, w.Kind)
	}
	named := func(name string) *argoTemplate {
		i := slices.IndexFunc(w.Spec.Templates, func(t argoTemplate) bool { return t.Name == name })
		if i < 0 {
			say("there is no template %q", name)
			return nil
		}
		return &w.Spec.Templates[i]
	}
	named(w.Spec.Entrypoint)
	has := func(p argoParameters, name string) bool {
		return slices.ContainsFunc(p.Parameters, func(one struct{ Name, Value string }) bool { return one.Name == name })
	}
	for _, t := range w.Spec.Templates {
		if (t.Container == nil) == (len(t.Steps) == 0) {
			say("%s is neither steps nor a container, or both", t.Name)
		}
		for _, step := range slices.Concat(t.Steps...) {
			called := named(step.Template)
			for _, p := range step.Arguments.Parameters {
				if called != nil && !has(called.Inputs, p.Name) {
					say("%s gives %s, which %s doesn't take", step.Name, p.Name, called.Name)
				}
				for _, found := range placeholder.FindAllStringSubmatch(p.Value, -1) {
					if found[1] != "item" || step.WithSequence == nil {
						say("%s has {{%s}}, and nothing gives it", step.Name, found[1])
					}
				}
				part := shardsOf.FindStringSubmatch(p.Value)
				if part != nil && (step.WithSequence == nil || step.WithSequence.Start != "1" || step.WithSequence.End != part[2] || part[1] != "{{item}}") {
					say("%s plays %s, and not each once", step.Name, part[0])
				}
			}
			for i := 0; called != nil && i < len(called.Inputs.Parameters); i++ {
				if name := called.Inputs.Parameters[i].Name; !has(step.Arguments, name) {
					say("%s doesn't give %s, which %s takes", step.Name, name, called.Name)
				}
			}
		}
		if t.Container == nil {
			continue
		}
		for _, found := range placeholder.FindAllStringSubmatch(strings.Join(append(t.Container.Args, t.Container.Command...), " "), -1) {
			if name, is := strings.CutPrefix(found[1], "inputs.parameters."); !is || !has(t.Inputs, name) {
				say("%s has {{%s}}, and nothing gives it", t.Name, found[1])
			}
		}
		for _, mount := range t.Container.VolumeMounts {
			if !slices.ContainsFunc(w.Spec.Volumes, func(v argoVolume) bool { return v.Name == mount.Name && v.PersistentVolumeClaim.ClaimName != "" }) {
				say("%s mounts %s, which is no volume", t.Name, mount.Name)
			}
		}
	}
	return wrong
}

// lintShell says what is wrong with the shell of a document: its syntax, and a campaign of which
// not all shards are played.
func lintShell(block string) (wrong []string) {
	parse := exec.Command("bash", "-n")
	parse.Stdin = strings.NewReader(block)
	if said, err := parse.CombinedOutput(); err != nil {
		wrong = append(wrong, string(said))
	}
	part, all := shardsOf.FindStringSubmatch(block), sequence.FindStringSubmatch(block)
	if (all != nil || strings.HasPrefix(block, "parallel ")) && (part == nil || all == nil || part[1] != "{}" || part[2] != all[1]) {
		wrong = append(wrong, fmt.Sprintf("it plays %q of %q", part, all))
	}
	return wrong
}

// lintMatrix says whether a workflow of GitHub's plays each shard once. The rest is actionlint's.
func lintMatrix(text []byte) (wrong []string) {
	var w struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Shard []int }
			}
			Steps []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal(text, &w); err != nil {
		return []string{err.Error()}
	}
	shard := w.Jobs["shard"]
	for i, n := range shard.Strategy.Matrix.Shard {
		if n != i+1 {
			wrong = append(wrong, fmt.Sprintf("shard %d is the %dth", n, i+1))
		}
	}
	want := fmt.Sprintf("--shard ${{ matrix.shard }}/%d ", len(shard.Strategy.Matrix.Shard))
	if n := len(shard.Strategy.Matrix.Shard); n < 1 || n > 256 || !slices.ContainsFunc(shard.Steps, func(s struct{ Run string }) bool { return strings.Contains(s.Run, want) }) {
		wrong = append(wrong, fmt.Sprintf("none of its steps has %q", want))
	}
	return wrong
}

// TestShards lints how the documents have shards played elsewhere: each once, and with nothing that
// whoever plays them doesn't know.
func TestShards(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	blocks, parallel := shell.FindAllStringSubmatch(read("campaigns.md"), -1), ""
	for _, block := range blocks {
		for _, wrong := range lintShell(block[1]) {
			t.Errorf("docs/campaigns.md: %s in\n%s", wrong, block[1])
		}
		if strings.HasPrefix(block[1], "parallel ") {
			parallel = block[1]
		}
	}
	argo := func(s string) []string { return lintArgo([]byte(s)) }
	matrix := func(s string) []string { return lintMatrix([]byte(s)) }
	for _, c := range []struct {
		text     string
		lint     func(string) []string
		mistakes map[string]string
	}{
		{read("ci/argo.yaml"), argo, map[string]string{
			"generateName": "generatename2", "entrypoint: all": "entrypoint: every", `end: "40"`: `end: "39"`, "{{item}}/40": "{{items}}/40", "claimName: blobs": "claim: blobs",
			"template: fencelab": "template: fence", "inputs: {parameters: [{name: args}]}": "inputs: {}", "{{inputs.parameters.args}}": "{{inputs.args}}", "{name: blobs, mountPath": "{name: blob, mountPath",
			`args, value: "merge`: `command, value: "merge`,
		}},
		{read("ci/campaign.yaml"), matrix, map[string]string{"19, 20]": "19]", "[1, 2,": "[1, 1,", "}}/20": "}}/40"}},
		{parallel, lintShell, map[string]string{"seq 40": "seq 39", "--shard {}/40": "--shard 1/40", "{}' :::": "{} :::"}},
	} {
		if wrong := c.lint(c.text); len(wrong) > 0 || c.text == "" {
			t.Errorf("%s in\n%s", wrong, c.text)
		}
		for old, mistake := range c.mistakes {
			if made := strings.Replace(c.text, old, mistake, 1); made == c.text || len(c.lint(made)) == 0 {
				t.Errorf("with %s for %s nothing is wrong in\n%s", mistake, old, made)
			}
		}
	}
}
