package file_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fencelab/fencelab/scenarios/file"
)

const aCampaign = `apiVersion: fencelab.dev/v1alpha1
kind: Campaign
metadata: {name: nightly, description: What a night has time for.}
spec:
  stories: [stories]
  filter: [label=disk]
  except: ["*-slow"]
  searches:
    - {strategy: orders}
    - {strategy: random, schedules: 50, seeds: [1, 2]}
  guarantees: {at-most-one: 50}
`

const aStory = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: NAME, description: A host is cut off., labels: [LABEL]}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: reboot}]
  steps: [{do: {cut: {host: worker-1}}}]
`

// TestCampaign: a campaign has the stories that it names, beside its file, without those that it
// leaves out; whatever is wrong with it is said with its place, and an editor says most of it too.
func TestCampaign(t *testing.T) {
	dir := t.TempDir()
	for name, label := range map[string]string{"a": "disk", "b-slow": "disk", "c": "net", "e-real": "disk"} {
		text := strings.NewReplacer("NAME", name, "LABEL", label).Replace(aStory)
		if strings.HasSuffix(name, "-real") {
			text += "  worlds: [lab]\n"
		}
		if err := os.MkdirAll(filepath.Join(dir, "stories"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stories", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Beside the stories it is none of them.
	if err := os.WriteFile(filepath.Join(dir, "stories", "campaign.yaml"), []byte(aCampaign), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "nightly.yaml")
	schema := compileSchemaOf(t, file.CampaignSchema, file.CampaignSchemaID)
	for _, c := range []struct {
		old, new, want string
		unseen         bool // by the schema
	}{
		{},
		{"apiVersion: fencelab.dev/v1alpha1", "apiVersion: v1", `1:13: apiVersion: "v1" where fencelab.dev/v1alpha1 is expected`, false},
		{"kind: Campaign", "kind: Scenario", `2:7: kind: "Scenario" where Campaign is expected: a scenario is played with fencelab run`, false},
		{"name: nightly", "name: Nightly", `3:18: metadata.name: "Nightly" is not a valid name`, false},
		{"stories: [stories]", "stories: []", "5:12: spec.stories: is empty", false},
		{"stories: [stories]", "stories: [tales]", "5:13: spec.stories[0]: stat", true},
		{"stories: [stories]", "stories: [stories/a.yaml, stories/e-real.yaml]", "5:29: spec.stories[1]: can be told in lab only, and a campaign is played in the simulator", true},
		{"stories: [stories]", "tories: [stories]", `5:3: spec.tories: unknown field "tories": did you mean "stories"?`, false},
		{"[label=disk]", "[colour=red]", `6:12: spec.filter[0]: "colour": filter by name, seed, label or guarantee`, true},
		{"[label=disk]", "[label=tape]", "6:11: spec.filter: none of the stories matches", true},
		{`["*-slow"]`, "[a, d]", `7:15: spec.except[1]: "d" is the name of no story`, true},
		{`["*-slow"]`, `["*"]`, "7:11: spec.except: leaves out every story", true},
		{"strategy: orders", "strategy: oders", `9:18: spec.searches[0].strategy: unknown strategy "oders": did you mean "orders"?`, false},
		{"random, schedules: 50", "random", "10:7: spec.searches[1]: random has no end: say how many schedules it plays", true},
		{"strategy: orders", "strategy: orders, depth: 2, within: 2s", "", false},
		{"random, schedules: 50", "random, schedules: 50, depth: 2", "10:48: spec.searches[1].depth: random combines no deviations", true},
		{"random, schedules: 50", "random, schedules: 50, within: 2s", "10:49: spec.searches[1].within: random has delays of its own", true},
		{"strategy: orders", "strategy: orders, depth: 2, schedules: 9", "9:33: spec.searches[0].depth: is played to its end: leave out schedules", true},
		{"strategy: orders", "strategy: portfolio, depth: 2", "9:36: spec.searches[0].depth: portfolio needs schedules", true},
		{"strategy: orders", "strategy: orders, depth: -1", "9:33: spec.searches[0].depth: must be at least 1", false},
		{"schedules: 50", "schedules: -1", "10:37: spec.searches[1].schedules: must be at least 1", false},
		{"seeds: [1, 2]", "seeds: [2, 2]", "10:52: spec.searches[1].seeds[1]: 2 is listed twice", true},
		{"strategy: orders", "strategy: random, schedules: 3", `10:18: spec.searches[1].strategy: "random" is already that of spec.searches[0]: add its seeds there`, true},
		{"at-most-one", "at-most-two", `11:29: spec.guarantees.at-most-two: unknown guarantee "at-most-two": did you mean "at-most-one"?`, false},
		{"one: 50", "one: 0", "11:29: spec.guarantees.at-most-one: is a percentage: write a number from 1 to 100", false},
		{"one: 50", "one: half", `11:29: spec.guarantees.at-most-one: the text "half" where a plain whole number is expected`, false},
	} {
		text := strings.Replace(aCampaign, c.old, c.new, 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		campaign, stories, err := file.LoadCampaign(path, vocabulary())
		switch {
		case c.want == "" && err != nil:
			t.Fatal(err)
		case c.want == "":
			if len(stories) != 1 || stories[0].Metadata.Name != "a" || campaign.Spec.Searches[1].Seeds[1] != 2 || campaign.Spec.Guarantees["at-most-one"] != 50 {
				t.Errorf("it has the stories %v, and says %+v", stories, campaign.Spec)
			}
		case err == nil || !strings.HasPrefix(err.Error(), path+":"+c.want):
			t.Errorf("%s: got %v, want %s", c.new, err, c.want)
		}
		if seen := valid(t, schema, []byte(text)) != nil; seen != (c.want != "" && !c.unseen) {
			t.Errorf("%s: the schema sees something wrong: %v", c.new, seen)
		}
	}
}

func compileSchemaOf(t *testing.T, of func(file.Vocabulary) ([]byte, error), id string) *jsonschema.Schema {
	t.Helper()
	data, err := of(vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(id, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
