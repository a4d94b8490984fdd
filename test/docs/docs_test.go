package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/test/clone"
)

var update = flag.Bool("update", false, "write what the commands print into the documents")

// documents are the README and the pages that it leads to.
func documents(t *testing.T) map[string]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"docs/*.md", "docs/measured/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || found == nil {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	texts := make(map[string]string)
	for _, file := range append(files, "README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(data)
	}
	return texts
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	// slugDrops matches the characters that a heading's anchor omits.
	slugDrops = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks follows every relative link of the documents, to its heading.
func TestLinks(t *testing.T) {
	texts := documents(t)
	anchors := func(file string) (found []string) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(data), ""), -1) {
			found = append(found, strings.ReplaceAll(slugDrops.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
		}
		return found
	}
	for file, text := range texts {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			path, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(path, ":") {
				continue // another site's
			}
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", file, l[1], err)
			} else if anchor != "" && !slices.Contains(anchors(target), anchor) {
				t.Errorf("%s links to %s, which has no such heading", file, l[1])
			}
		}
	}
}

// TestConsole runs the commands of every console block where a fresh clone would
// run them after make build, and compares what they print. A line of dots stands
// for lines that are left out.
func TestConsole(t *testing.T) {
	texts := documents(t)
	delete(texts, tutorial)
	for file, text := range texts {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			if err := clone.Fill(dir); err != nil {
				t.Fatal(err)
			}
			self, err := exec.LookPath(clone.Command)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(self, filepath.Join(dir, "bin", clone.Command)); err != nil {
				t.Fatal(err)
			}
			now := fence.ReplaceAllStringFunc(text, func(block string) string {
				parts := fence.FindStringSubmatch(block)
				if parts[1] != "console" {
					return block
				}
				return "```console\n" + session(t, dir, parts[2], dir) + "```"
			})
			compare(t, file, text, now)
		})
	}
}

// compare checks a document against the commands' present output, or rewrites it.
func compare(t *testing.T, file, text, now string) {
	t.Helper()
	switch {
	case now == text:
	case *update:
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s doesn't show what the commands print; run make golden. Now it is:\n%s", file, difference(text, now))
	}
}

const elided = "..."

// progress matches the lines of a search that takes longer on this machine than on the one that
// wrote the document.
var progress = regexp.MustCompile(`(?m)^.*: [0-9,]+ of [0-9,]+ schedules, .* left, [0-9,]+ failed\n`)

// duration matches the parts that differ from run to run.
var duration = regexp.MustCompile(`\b([0-9]+h)?([0-9]+m)?[0-9.]+(µs|ms|s): |\b[0-9]+ schedules/s`)

// session runs the commands of a console block, which stand behind "$ ", and
// returns the block with what they print now, the clone's directory hidden.
func session(t *testing.T, dir, block, root string) string {
	t.Helper()
	var now strings.Builder
	lines := strings.SplitAfter(block, "\n")
	for i := 0; i < len(lines) && lines[i] != ""; {
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			t.Fatalf("a console block begins with %q, not with a command", lines[i])
		}
		now.WriteString(lines[i])
		end := i + 1
		for end < len(lines) && lines[end] != "" && !strings.HasPrefix(lines[end], "$ ") {
			end++
		}
		shown := lines[i+1 : end]
		i = end

		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); err != nil && code != exit.Violated {
			t.Errorf("%s: %v\n%s", strings.TrimSpace(command), err, output)
		}
		text := strings.ReplaceAll(progress.ReplaceAllString(string(output), ""), root, "/home/you/fencelab")
		printed := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
		printed = printed[:len(printed)-1]
		if strings.TrimSpace(string(output)) == "" {
			printed = nil
		}
		if at := slices.Index(shown, elided+"\n"); at >= 0 {
			tail := len(shown) - at - 1
			if len(printed) < at+tail {
				t.Fatalf("%s: printed too little:\n%s", strings.TrimSpace(command), output)
			}
			printed = slices.Concat(printed[:at], []string{elided + "\n"}, printed[len(printed)-tail:])
		}
		for j, line := range printed {
			if j < len(shown) && duration.ReplaceAllString(line, "") == duration.ReplaceAllString(shown[j], "") {
				line = shown[j]
			}
			now.WriteString(line)
		}
	}
	return now.String()
}

func difference(before, after string) string {
	var b strings.Builder
	old := strings.Split(before, "\n")
	for i, line := range strings.Split(after, "\n") {
		if i >= len(old) || line != old[i] {
			fmt.Fprintf(&b, "%d: %s\n", i+1, line)
		}
	}
	return b.String()
}

// TestExcerpts shows that every piece of YAML about scenarios is taken from one
// that the tests run. The rules of fakebmc have a page, and tests, of their own.
func TestExcerpts(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"docs/examples/*.yaml", "docs/ci/*.yaml", "docs/systems/*/*.yaml", "test/process/testdata/systems/*/*.yaml", "scenarios/catalog/*/*.yaml", "test/requests/testdata/*.yaml", "test/script/testdata/script/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, "\n"+string(data))
		}
	}
	found := 0
	texts := documents(t)
	delete(texts, "docs/fakebmc.md")
	delete(texts, tutorial)
	for file, text := range texts {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if block[1] != "yaml" {
				continue
			}
			found++
			if !slices.ContainsFunc(sources, func(source string) bool { return excerpt(source, block[2]) }) {
				t.Errorf("%s has YAML that no example and no scenario of the catalogue has:\n%s", file, block[2])
			}
		}
	}
	if found == 0 {
		t.Error("the documents show no YAML")
	}
}

// excerpt reports whether the source has the block's lines, all further indented
// by the same number of spaces.
func excerpt(source, block string) bool {
	for indent := 0; indent <= 12; indent += 2 {
		margin := "\n" + strings.Repeat(" ", indent)
		if strings.Contains(source, margin+strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", margin)+"\n") {
			return true
		}
	}
	return false
}

// TestComplete shows that the documents leave out nothing that a scenario can
// say, and nothing that fencelab judges.
func TestComplete(t *testing.T) {
	texts := documents(t)
	mentions := func(file, what string) {
		if !strings.Contains(texts[file], what) {
			t.Errorf("%s says nothing of %s", file, what)
		}
	}
	for _, inv := range guarantee.All() {
		mentions("docs/guarantees.md", fmt.Sprintf("| `%s` | %s | %s |", inv.ID, inv.Claim, inv.Seed))
	}
	for _, name := range search.Strategies() {
		mentions("docs/commands.md", `\|`+name)
		mentions("docs/design.md", "- *"+name+"*")
	}
	for page := range texts { // order does not matter: each is looked for by itself
		if dir, name := filepath.Split(page); dir == "docs/" && name != "README.md" {
			mentions("docs/README.md", "| ["+name+"]("+name+") | ")
		}
	}
	for _, verb := range cmd.Verbs() {
		mentions("docs/commands.md", "`fencelab "+verb)
	}
	const reference = "docs/scenarios.md"
	for _, layer := range []history.Layer{history.World, history.API, history.BMC, history.Controller} {
		for _, kind := range history.Kinds(layer) {
			mentions(reference, fmt.Sprintf("`%s`", kind))
		}
	}
	schema, err := file.Schema(cmd.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	var types struct {
		Definitions map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &types); err != nil {
		t.Fatal(err)
	}
	for name, definition := range types.Definitions {
		if strings.HasPrefix(name, "fakebmc.") {
			continue // documented on a page of its own
		}
		for property := range definition.Properties {
			mentions(reference, fmt.Sprintf("`%s`", property))
		}
	}
}

// TestKinds compares the table of the kinds of objects with the kinds that scenarios know.
func TestKinds(t *testing.T) {
	names := map[scenarios.Naming]string{
		scenarios.Freely: "any; `with` says what is in it", scenarios.AfterHost: "of a host", scenarios.AfterNode: "of a host's Node", scenarios.AfterMachine: "of a host's Machine",
		scenarios.AfterCluster: "`" + scenarios.ClusterName + "`",
	}
	may := map[bool]string{true: "yes", false: "no"}
	var table, others strings.Builder
	head := "| kind | name | `annotate` | `patch`, `delete` | `create` |\n"
	table.WriteString(head + "|---|---|---|---|---|\n")
	for _, k := range cmd.Vocabulary().Kinds {
		if !k.Changed && !k.Made {
			fmt.Fprintf(&others, ", `%s`", k.Name)
			continue
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", k.Name, names[k.Named], may[k.Annotated], may[k.Changed], may[k.Made])
	}
	fmt.Fprintf(&table, "| %s | only `failAPI` and caches have to do with it | | | |\n", strings.TrimPrefix(others.String(), ", "))
	holds(t, "docs/scenarios.md", "which kinds there are", regexp.QuoteMeta(head), table.String())
}

// holds shows that a document has a table, whose head matches a pattern.
func holds(t *testing.T, file, what, head, table string) {
	t.Helper()
	text := documents(t)[file]
	if strings.Contains(text, "\n"+table+"\n") {
		return
	}
	if *update {
		now := regexp.MustCompile(`(?m)^`+head+`(\|.*\n)+`).ReplaceAllLiteralString(text, table)
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s doesn't show %s; run make golden. It is:\n%s", file, what, table)
}

// TestWorlds compares the table of features that only some worlds have with their capabilities.
func TestWorlds(t *testing.T) {
	known := scenarios.Features()
	names := make(map[scenarios.Feature]string)
	for _, feature := range known {
		names[feature] = "`" + string(feature) + "`"
	}
	names[scenarios.FeatureSeveral] = "several controllers of a kind"
	names[scenarios.FeatureNamesakes] = "`nodeName` of two hosts"
	names[scenarios.FeatureControllerLinks] = "`cut` of a controller's link"
	names[scenarios.FeatureForeignFields] = "`patch` of `foreign` fields"
	names[scenarios.FeatureVolumes] = "`create` of a Pod with `volumes`"
	names[scenarios.FeatureOutOfService] = "`patch` that sets an out-of-service taint"
	names[scenarios.FeaturePausedWatchdog] = "`pause` of a host with a `watchdog` that is no `softdog`"
	names[scenarios.FeatureDeviations] = "`deviations` of a plan, by class"
	names[scenarios.FeatureDeeds] = "`deviations` of a plan, by deed"
	names[scenarios.FeatureLateRequests] = "`lateBy` of a crash around no effect"
	names[scenarios.FeatureControllerClocks] = "`setClock` of a controller"
	names[scenarios.FeatureClockRates] = "`gains` and `loses` of a clock"
	for _, need := range []fakebmc.Need{fakebmc.NeedsWire, fakebmc.NeedsIPMI, fakebmc.NeedsGuest, fakebmc.NeedsPeers} {
		known = append(known, scenarios.Feature(need))
		names[scenarios.Feature(need)] = "`" + strings.Join(fakebmc.KeysThatNeed(need), "`, `") + "` of a fault's `rule`"
	}
	names[scenarios.FeatureIPMIClient] = "`via: ipmi` of a fault's `rule`"
	names[scenarios.FeatureIPMI] = "`via: ipmi` of a controller"
	var table strings.Builder
	table.WriteString("| |")
	for _, world := range cmd.Worlds {
		fmt.Fprintf(&table, " %s |", world.World)
		for feature := range world.Lacks {
			if !slices.Contains(known, feature) {
				t.Errorf("the %s lacks %q, which no plan can ask for", world.Title, feature)
			}
		}
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(cmd.Worlds)) + "\n")
	row, last := "", ""
	for _, feature := range known {
		cells, lacking := "", false
		for _, world := range cmd.Worlds {
			why, lacks := world.Lacks[feature]
			lacking = lacking || lacks
			if !lacks {
				why = "yes"
			}
			cells += " | " + why
		}
		switch {
		case !lacking:
		case cells == last:
			row += ", " + names[feature]
		default:
			if row != "" {
				table.WriteString("| " + row + last + " |\n")
			}
			row, last = names[feature], cells
		}
	}
	table.WriteString("| " + row + last + " |\n")
	holds(t, "docs/scenarios.md", "what only some worlds can do", `\| \| sim \|.*\n`, table.String())
}

// TestVersions: the oldest Kubernetes that docs/setup.md names is the one that fencelab requires,
// with which the example modules are built and tested; ci/versions.sh has one with the newest.
func TestVersions(t *testing.T) {
	_, row, found := strings.Cut(documents(t)["docs/setup.md"], "\n| oldest | ")
	row, _, _ = strings.Cut(row, " |\n")
	said := strings.Split(row, " | ")
	if !found || len(said) != 3 {
		t.Fatalf("docs/setup.md has no row of three oldest versions: %q", row)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "`{{.Version}}`", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime").Output()
	if err != nil {
		t.Fatal(err)
	}
	required := strings.Fields(string(out))
	for i, want := range required {
		got := said[min(i/3, 1)]
		if got != want {
			t.Errorf("docs/setup.md says %s, and go.mod %s", got, want)
		}
	}
}
