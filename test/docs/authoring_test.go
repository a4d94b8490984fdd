package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/scenarios/file"
)

// authoring lists mistakes that authors make in a good scenario: the text they write instead of the
// right one, and a mark for the message that they get: 2 leads to the fix, 1 needs thought, 0
// misleads or says nothing.
var authoring = []struct {
	mistake, of, instead string
	mark                 int
	why                  string
}{
	{"a field in the wrong case", "pollInterval: 1s", "pollinterval: 1s", 2, "it names the field that was meant"},
	{"a setting without its unit", "pollInterval: 1s", "pollInterval: 1", 2, "it says what to add"},
	{"a duration without its unit", "lease: 1s", "lease: 1", 2, "it says what to add"},
	{"a negative duration", "after: 1s", "after: -5s", 2, "only one thing can be changed"},
	{"an event misspelled", "event: node-deleted", "event: node-delete", 2, "it names the event that was meant"},
	{"an event in camel case", "event: node-deleted", "event: nodeDeleted", 2, "it names the event that was meant"},
	{"an operation misspelled", "do: {cut:", "do: {cutOff:", 2, "it names the operation that was meant"},
	{"an argument misspelled", "{cut: {host: worker-1}}", "{cut: {hots: worker-1}}", 2, "it names the argument that was meant"},
	{"a host that isn't there", "{cut: {host: worker-1}}", "{cut: {host: worker-3}}", 2, "it lists the hosts"},
	{"names where fields belong", "hosts: [{name: worker-1}, {name: worker-2}]", "hosts: [worker-1, worker-2]", 2, "it writes what was meant"},
	{"a list where one thing belongs", "workload: {host: worker-1}", "workload: {host: [worker-1]}", 2, "text is expected, and the list has one"},
	{"a name among entries with fields", "    - name: healthcheck\n", "    - healthcheck\n", 2, "it writes what was meant"},
	{"an event where its fields belong", "when: {event: node-ready, host: worker-1}", "when: node-ready", 2, "it writes what was meant"},
	{"an event under do", "do: {restore: {host: worker-1}}", "do: {event: node-ready, host: worker-1}", 2, "the first error says where it belongs; the second follows from it"},
	{"an operation under when", "when: {event: workload-started}", "when: {restore: {host: worker-1}}", 2, "it says where it belongs"},
	{"a line too far to the left", "      do: {cut: {host: worker-1}}", "     do: {cut: {host: worker-1}}", 2, "it names the line and both indentations"},
	{"a line too far to the right", "      when: {event: workload-started}", "       when: {event: workload-started}", 2, "it names the line and both indentations"},
	{"settings too far to the left", "      settings: {pollInterval: 1s}", "     settings: {pollInterval: 1s}", 2, "it names the line and both indentations"},
	{"a dash forgotten", "    - name: the workload runs elsewhere", "      name: the workload runs elsewhere", 2, "it names the dash; the second error follows from the same line"},
	{"a tab", "      after: 1s", "\tafter: 1s", 2, "it says what to use"},
	{"a space forgotten behind a colon", "- name: remediation", "- name:remediation", 2, "it says what to add"},
	{"a field twice", "    lease: 1s", "    lease: 1s\n    lease: 2s", 2, "it names the other line"},
	{"a field of another place", "  healthCheck: {", "    healthCheck: {", 2, "it says where the field belongs"},
	{"a field that doesn't exist", "  steps:", "  expected: held\n  steps:", 2, "it names the field that was meant"},
	{"a verdict instead of what is violated", "  steps:", "  expect: violated\n  steps:", 1, "the form is shown; that a guarantee goes there has to be known"},
	{"a guarantee misspelled", "  steps:", "  expect: {violated: node-deleted-before-reboot}\n  steps:", 2, "it names the guarantee that was meant"},
	{"held as an expectation", "  steps:", "  expect: {violated: held}\n  steps:", 2, "it says how that is expected"},
	{"a controller misspelled", "- name: remediation", "- name: remediator", 2, "it names the controller that was meant"},
	{"a controller of one's own", "- name: remediation", "- name: team-fencer", 2, "it says how the command gets to know it"},
	{"a controller twice", "    - name: remediation", "    - name: remediation\n    - name: reboot", 2, "it names the other one"},
	{"a health check and no controller for it", "    - name: healthcheck\n", "", 2, "it names the controller to add"},
	{"a controller without its health check", "  healthCheck: {unhealthyAfter: 3s, nodeStartupTimeout: 60s}\n", "", 2, "a warning says what the controller doesn't do, and both ways out"},
	{"nobody who acts on what is marked", "    - name: remediation\n", "", 2, "a warning says what is missing, and what it is called"},
	{"two operations in a step", "do: {cut: {host: worker-1}}", "do: {cut: {host: worker-1}, restore: {host: worker-1}}", 2, "it says that a step does one; the second error follows from it"},
	{"a step without anything to do", "      do: {restore: {host: worker-1}}\n", "", 2, "it names what a step can have"},
	{"a since of two steps", "    - name: the cable is plugged in again\n      do: {restore: {host: worker-1}}\n    - name: the host is back\n      when: {event: node-ready, host: worker-1}",
		"    - name: the cable is pulled\n      do: {restore: {host: worker-1}}\n    - name: the host is back\n      when: {event: node-ready, host: worker-1, since: the cable is pulled}", 2, "it says that the names have to differ"},
	{"a since of no step", "when: {event: node-ready, host: worker-1}", "when: {event: node-ready, host: worker-1, since: the cable is cut}", 2, "it names the step that was meant"},
	{"restored before it was cut", "do: {cut: {host: worker-1}}", "do: {restore: {host: worker-1}}", 2, "it says what has to come before; both steps have no cut before them"},
	{"an event that cannot come", "when: {event: node-deleted, host: worker-1}", "when: {event: watchdog-fired, host: worker-1}", 2, "it says why"},
	{"an event that could come and won't", "when: {event: node-deleted, host: worker-1}", "when: {event: node-deleted, host: worker-2}", 1,
		"nothing in the file is wrong: `run` ends as unknown, says which step waited for what, and how long"},
	{"nothing waits for the last operation", "    - name: the host is back\n      when: {event: node-ready, host: worker-1}\n", "", 2, "it says what to add"},
	{"a guarantee that the story doesn't put to the test", "  steps:", "  expect: {violated: hooks-pause-drain}\n  steps:", 1,
		"whether a Machine with such a hook is deleted shows only as the controllers act: `run` ends as unknown, and says that none was"},
	{"a name in capitals", "name: cut-off-host", "name: Cut-Off-Host", 2, "it says what a name may have"},
	{"a host twice", "hosts: [{name: worker-1}, {name: worker-2}]", "hosts: [{name: worker-1}, {name: worker-1}]", 2, "it names the other one"},
	{"a workload on no host", "workload: {host: worker-1}", "workload: {host: worker-9}", 2, "it lists the hosts"},
	{"another version of the format", "fencelab.dev/v1alpha1", "fencelab.dev/v1", 2, "it says which is expected"},
	{"a kind of Kubernetes", "kind: Scenario", "kind: Pod", 2, "it says which is expected"},
	{"no description", "  description: >-\n    A host loses the API server while its workload runs on. It is powered off,\n    its Node is deleted, the workload starts elsewhere, and only then does the\n    host boot again.\n", "", 2, "it names the field"},
	{"an alias", "lease: 1s", "lease: *short", 2, "it says what to write instead"},
	{"a bracket left open", `seeds: ["000", "002"]`, `seeds: ["000", "002"`, 2, "it names the bracket and its line"},
	{"a preset as a field of a fault", "do: {cut: {host: worker-1}}", "do: {addFault: {name: slow, host: worker-1, preset: ilo5-slow}}", 1,
		"it lists the fields; that a rule can be {preset: ilo5-slow} stands in docs/scenarios.md"},
}

// wellWritten is the scenario in which the mistakes are made.
const wellWritten = "scenarios/catalog/machine-remediation/cut-off-host.yaml"

// linted returns the output of fencelab lint for a file.
func linted(text string) string {
	const name = "story.yaml"
	vocabulary := cmd.Vocabulary()
	warnings, err := file.Lint(name, []byte(text), vocabulary)
	if err != nil {
		return err.Error() + "\n"
	}
	var said strings.Builder
	for _, p := range warnings {
		fmt.Fprintf(&said, "warning: %v\n", p)
	}
	return said.String()
}

// TestAuthoring compares docs/measured/authoring.md with the messages that authors get for their
// mistakes.
func TestAuthoring(t *testing.T) {
	data, err := os.ReadFile(wellWritten)
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	if said := linted(good); said != "" {
		t.Fatalf("of the scenario in which the mistakes are made is said:\n%s", said)
	}
	var page strings.Builder
	marks := make(map[int]int)
	page.WriteString("# What authors are told of their mistakes\n\n" +
		"Each is made in the scenario at the end, and shown as `fencelab lint` and every other command tell it. The mark is ours: 2 leads to the fix,\n" +
		"1 needs thought, 0 misleads or says nothing. `make golden` writes this page.\n")
	for i, m := range authoring {
		if !strings.Contains(good, m.of) {
			t.Errorf("%s: the scenario doesn't have %q", m.mistake, m.of)
		}
		said := linted(strings.Replace(good, m.of, m.instead, 1))
		if said == "" {
			said = "(nothing)\n"
		}
		if strings.HasPrefix(said, "(nothing)") && m.mark == 2 {
			t.Errorf("%s: nothing is said, and that is to lead to the fix", m.mistake)
		}
		marks[m.mark]++
		fmt.Fprintf(&page, "\n## %d. %s%s: %d\n\n```text\n%s```\n\n%s%s.\n", i+1, strings.ToUpper(m.mistake[:1]), m.mistake[1:], m.mark, said, strings.ToUpper(m.why[:1]), m.why[1:])
	}
	fmt.Fprintf(&page, "\n## The scenario\n\nOf %d mistakes %d have a 2, %d a 1 and %d a 0.\n\n```yaml\n%s```\n", len(authoring), marks[2], marks[1], marks[0], good)
	const document = "docs/measured/authoring.md"
	if *update {
		if err := os.WriteFile(document, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if known, err := os.ReadFile(document); err != nil || string(known) != page.String() {
		t.Errorf("%s is not what authors are told (%v); run make golden", document, err)
	}
}
