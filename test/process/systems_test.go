package process

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/test/clone"
)

// The system of docs/systems.md, and what mends its mistake.
const (
	pythonFencer = "docs/systems/python-fencer"
	asWritten    = `off = held  # and not host["status"]["poweredOn"]`
	asItShould   = `off = held and not host["status"]["poweredOn"]`
)

// TestSystemsLoad: every system of the documents and of these tests, and every preset, is one, and
// finds its files, but for those that are built into .cache and bin. A preset says where it comes
// from.
func TestSystemsLoad(t *testing.T) {
	files, err := filepath.Glob("docs/systems/*/system.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v: %v", files, err)
	}
	presets, err := filepath.Glob(cmd.Presets + "/*/system.yaml")
	if err != nil || len(presets) == 0 {
		t.Fatalf("found %v: %v", presets, err)
	}
	ours, err := filepath.Glob("test/process/testdata/systems/*/system.yaml")
	if err != nil || len(ours) == 0 {
		t.Fatalf("found %v: %v", ours, err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Concat(files, presets, ours) {
		system, err := file.LoadSystem(path, cmd.Vocabulary())
		if err != nil {
			t.Error(err)
			continue
		}
		found := system.Files()
		for _, c := range system.Spec.Controllers {
			installs, find := []string(nil), (func(string) string)(nil)
			if c.Pods != nil {
				installs, find = c.Pods.Installs, c.Pods.File
			} else {
				installs, find = c.Program.Installs, c.Program.File
			}
			for _, name := range installs {
				found = append(found, find(name))
			}
		}
		for _, name := range found {
			made := strings.HasPrefix(name, root+"/.cache/") || strings.HasPrefix(name, root+"/bin/")
			if _, err := os.Stat(name); err != nil && !made && strings.Contains(name, "/") {
				t.Errorf("%s: %v", path, err)
			}
		}
		if !slices.Contains(presets, path) {
			continue
		}
		if system.About == nil || len(system.About.Tried) == 0 || system.Metadata.Name != filepath.Base(filepath.Dir(path)) {
			t.Errorf("%s doesn't say what it was tried with, or has another name than its directory", path)
			continue
		}
		named := []string{system.About.Stories}
		needs := strings.Join(system.About.Needs, "\n")
		for _, need := range system.About.Needs {
			if script, _, _ := strings.Cut(need, " "); strings.Contains(script, "/") {
				named = append(named, script)
				needs += " .cache/" + filepath.Base(filepath.Dir(script)) // which it makes
			}
		}
		for _, file := range system.Files() {
			if _, below, kept := strings.Cut(file, ".cache/"); kept && !strings.Contains(needs, ".cache/"+strings.Split(below, "/")[0]) && !strings.Contains(needs, "systems/") {
				t.Errorf("%s doesn't say what it needs as .cache/%s", path, below)
			}
		}
		for _, name := range named {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// TestAnyProgram follows docs/systems.md: a program in Python loses what it should keep
// while a BMC cannot be reached, and doesn't once its mistake is mended.
func TestAnyProgram(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	for _, c := range []struct {
		name, dir string
		code      int
		says      string
	}{
		{"as written", pythonFencer, exit.Violated, "fenced-before-release: the Node of worker-1 was deleted"},
		{"mended", mended(t, pythonFencer, "fencer.py", asWritten, asItShould), exit.Held, "held      unreachable-bmc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, said := inLab(t, ends(c.code, c.says), "scenarios/catalog/machine-remediation/unreachable-bmc.yaml", "--system", filepath.Join(c.dir, "system.yaml"))
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ended with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}

// mended is a copy of a directory in which a mistake in a file is mended.
func mended(t *testing.T, dir, file, wrong, right string) string {
	t.Helper()
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(other, file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), wrong); n != 1 {
		t.Fatalf("the mistake stands %d times in %s", n, file)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), wrong, right, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

// The BMC of docs/systems.md, and what mends its mistake.
const (
	pythonBMC    = "docs/systems/python-bmc"
	bmcAsWritten = `if host in going_off:  # and virsh("domstate", DOMAINS[host]) == "shut off"`
	bmcMended    = `if host in going_off and virsh("domstate", DOMAINS[host]) == "shut off":`
)

// TestAnyBMC follows docs/systems.md: a BMC in Python says Off of a host that still runs, and
// doesn't once its mistake is mended.
func TestAnyBMC(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	for _, c := range []struct {
		name, dir string
		code      int
		says      string
	}{
		{"as written", pythonBMC, exit.Violated, "fenced-before-release: the Node of worker-1 was deleted"},
		{"mended", mended(t, pythonBMC, "bmc.py", bmcAsWritten, bmcMended), exit.Held, "held      cut-off-host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, said := inLab(t, ends(c.code, c.says), "scenarios/catalog/machine-remediation/cut-off-host.yaml", "--system", filepath.Join(c.dir, "system.yaml"))
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ended with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}

// TestAgentsInPods follows docs/systems.md: an agent in the Pods of its DaemonSet has its host
// reset when it is cut off, and a workload runs twice where it goes on feeding the watchdog.
func TestAgentsInPods(t *testing.T) {
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") != "nodes" {
		t.Skip("it runs with make e2e-nodes")
	}
	const dir, image = "docs/systems/go-agent", "../../../out/go-agent.tar"
	right := mended(t, dir, "cut-off.yaml", image, "go-agent.tar")
	const asWritten, wrong = "\t\t\tcontinue // it is not fed\n\t\t}\n\t\tresponse.Body.Close()\n", "\t\t} else {\n\t\t\tresponse.Body.Close()\n\t\t}\n"
	for _, c := range []struct {
		name, dir string
		code      int
		says      string
	}{
		{"as written", right, exit.Held, "held      go-agent-cut-off"},
		{"with a mistake", mended(t, right, "main.go", asWritten, wrong), exit.Violated, "at-most-one: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(c.dir, "go-agent")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, filepath.Join(c.dir, "main.go"))
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			pack := exec.CommandContext(t.Context(), "go", "run", "./ci/image", program, "go-agent:1", program+".tar")
			for _, command := range []*exec.Cmd{build, pack} {
				if out, err := command.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
			}
			code, said := inLab(t, ends(c.code, c.says), filepath.Join(c.dir, "cut-off.yaml"), "--hosts", "node")
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ended with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}

// TestSushyTools: a host is fenced by way of OpenStack's emulator, where it has been installed.
func TestSushyTools(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	if _, err := os.Stat(".cache/sushy-tools/sushy_tools"); err != nil {
		t.Skipf("%v: systems/sushy-tools/system.yaml says what it needs", err)
	}
	code, said := inLab(t, ends(exit.Held, ""), "scenarios/conformance/order-cut-off-host.yaml", "--system", "systems/sushy-tools/system.yaml")
	if code != exit.Held {
		t.Errorf("it ended with %d:\n%s", code, said)
	}
}

// TestAnyProgramOfAnImage: the image of make image plays a part as its program would, and is
// killed at each of its effects.
func TestAnyProgramOfAnImage(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	if _, err := os.Stat("bin/image.tar"); err != nil {
		t.Fatalf("%v: make image builds it", err)
	}
	const story = "crash-after-each-effect"
	for _, system := range []string{"image", "as-in-a-pod"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			if system == "as-in-a-pod" { // somebody else has it here, unless a third one has
				if taken, err := net.Listen("tcp", "127.0.0.1:8081"); err == nil {
					t.Cleanup(func() { taken.Close() })
				}
			}
			code, said := inLab(t, ends(exit.Held, "held      "+story), "scenarios/catalog/machine-remediation/"+story+".yaml", "--system", "test/process/testdata/systems/"+system+"/system.yaml", "--hosts", "model")
			if code != exit.Held || !strings.Contains(said, "held      "+story) {
				t.Errorf("it ended with %d:\n%s", code, said)
			}
		})
	}
}

// metal3 is a system of other people's programs, and upstream the stories of what it doesn't keep.
const metal3, upstream = "systems/metal3/system.yaml", "scenarios/upstream/metal3"

// TestUpstream: the stories ask for no more than fencelab's own controllers keep, and each has its
// page, with the command that plays it.
func TestUpstream(t *testing.T) {
	all, err := file.LoadFiles([]string{upstream}, cmd.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if !strings.Contains(string(page), "| `"+s.Metadata.Name+"` |") {
			t.Errorf("docs/findings.md says nothing of %s", s.Metadata.Name)
		}
	}
	var said bytes.Buffer
	if code := cmd.Execute(t.Context(), []string{"run", "--out", t.TempDir(), upstream}, strings.NewReader(""), &said, &said); code != exit.Held {
		t.Errorf("they ended with %d, want %d:\n%s", code, exit.Held, said.String())
	}
	system, err := file.LoadSystem(metal3, cmd.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	unfit, err := system.UnderTest(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if why := unfit(s); why != "" {
			t.Errorf("%s isn't told with %s: %s", s.Metadata.Name, metal3, why)
			continue
		}
		plan, err := scenarios.Compile(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.LoadPlan(s.Metadata.Name, plan.Text(), cmd.Vocabulary()); err != nil {
			t.Errorf("what a report says to replay is refused: %v", err)
		}
	}
}

// TestMetal3 plays the first of them with upstream's own programs, where they have been built: see
// docs/systems.md.
func TestMetal3(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	for _, needed := range []string{".cache/metal3/baremetal-operator", ".cache/ironic/bin/ironic"} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("%v: systems/metal3/system.yaml says what it needs", err)
		}
	}
	const want = "claim-is-true: worker-1 was on, and BareMetalHost/worker-1 said by status.poweredOn=false that it was off"
	code, said := inLab(t, ends(exit.Violated, want), upstream+"/f04-second-client-after-a-release.yaml", "--system", metal3, "--hosts", "model")
	if code != exit.Violated || !strings.Contains(said, want) {
		t.Errorf("it ended with %d, want %d and %q:\n%s", code, exit.Violated, want, said)
	}
}

// clusterAPI is a system of another project's, and aboutClusterAPI what it is judged by.
const clusterAPI, aboutClusterAPI = "systems/cluster-api/system.yaml", "scenarios/upstream/cluster-api"

// TestClusterAPI plays the stories with Cluster API's own manager, where it has been built.
func TestClusterAPI(t *testing.T) {
	tellsAsItSays(t, "model", clusterAPI, aboutClusterAPI, ".cache/cluster-api/manager: build it with systems/cluster-api/build.sh")
}

// medik8s is a system of another project's, and aboutMedik8s what it is judged by.
const medik8s, aboutMedik8s = "systems/medik8s/system.yaml", "scenarios/upstream/medik8s"

// TestMedik8s plays the stories with medik8s' own operators, where they have been built.
func TestMedik8s(t *testing.T) {
	tellsAsItSays(t, "model", medik8s, aboutMedik8s, ".cache/medik8s/bin/fence-agents-remediation: systems/medik8s/system.yaml says what it needs")
}

// TestKubeVirtBMC plays the stories with the BMC of kubevirtbmc, where it has been built.
func TestKubeVirtBMC(t *testing.T) {
	tellsAsItSays(t, "guest", "systems/kubevirtbmc/system.yaml", "scenarios/upstream/kubevirtbmc", ".cache/kubevirtbmc/virtbmc: systems/kubevirtbmc/system.yaml says what it needs")
}

// tellsAsItSays plays stories of such hosts with a system, where a file says that it was built.
// Each has the verdict that docs/systems.md says. Those that the simulator can play hold with
// fencelab's own controllers.
func tellsAsItSays(t *testing.T, hosts, system, about, built string) {
	t.Helper()
	t.Parallel()
	all, err := file.LoadFiles([]string{about}, cmd.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/systems.md")
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if code := cmd.Execute(t.Context(), []string{"run", "--out", t.TempDir(), about}, strings.NewReader(""), &said, &said); code != exit.Held {
		t.Errorf("with fencelab's own controllers they ended with %d, want %d:\n%s", code, exit.Held, said.String())
	}
	var told []string
	for _, s := range all {
		name, _, _ := strings.Cut(s.Metadata.Name, ".") // all cells of a matrix at once
		if slices.Contains(told, name) {
			continue
		}
		told = append(told, name)
		says := saidOf(t, page, name)
		t.Run(name, func(t *testing.T) { comesAsSaid(t, hosts, system, filepath.Join(about, name+".yaml"), says, built) })
	}
}

// saidOf returns what comes of a story by the table of a page.
func saidOf(t *testing.T, page []byte, story string) string {
	t.Helper()
	_, row, found := strings.Cut(string(page), "| `"+story+"` | ")
	says, _, ended := strings.Cut(row, " |")
	if !found || !ended {
		t.Errorf("docs/systems.md doesn't say what comes of %s", story)
	}
	return says
}

// comesAsSaid plays a story in the lab, where a file says that the system was built.
func comesAsSaid(t *testing.T, hosts, system, story, says, built string) {
	t.Helper()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	file, remedy, _ := strings.Cut(built, ":")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("%v:%s", err, remedy)
	}
	t.Parallel()
	_, guarantee, _ := strings.Cut(says, "violated: `")
	guarantee, _, violated := strings.Cut(guarantee, "`")
	asItSays := func(code int, said string) bool {
		return code == exit.Held && strings.Contains(says, "held") || code == exit.Violated && violated && strings.Contains(said, guarantee+":")
	}
	if code, said := inLab(t, asItSays, story, "--system", system, "--hosts", hosts); !asItSays(code, said) {
		t.Errorf("it ended with %d, want %s:\n%s", code, says, said)
	}
}

// TestMetalOperator plays three of the stories with metal-operator's manager, where it has been
// built. They need the module with its kinds, which fencelab.yaml beside them names, so that only
// the command can read them.
func TestMetalOperator(t *testing.T) {
	t.Parallel()
	const about = "scenarios/upstream/metal-operator"
	page, err := os.ReadFile("docs/systems.md")
	if err != nil {
		t.Fatal(err)
	}
	stories, err := filepath.Glob(about + "/mo-*.yaml")
	if err != nil || len(stories) == 0 {
		t.Fatalf("found %v: %v", stories, err)
	}
	played := []string{"mo-claim-ends", "mo-shutdown-ignored", "mo-fenced-while-reserved"}
	for _, story := range stories {
		name := strings.TrimSuffix(filepath.Base(story), ".yaml")
		says := saidOf(t, page, name)
		if i := slices.Index(played, name); i >= 0 {
			played = slices.Delete(played, i, i+1)
			t.Run(name, func(t *testing.T) {
				comesAsSaid(t, "model", "systems/metal-operator/system.yaml", story, says, ".cache/metal-operator/v0.7.0/manager: build it with systems/metal-operator/build.sh")
			})
		}
	}
	if len(played) > 0 {
		t.Errorf("%s has no story of the name %s", about, played)
	}
	t.Run("lint", func(t *testing.T) {
		if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
			t.Skip("it builds fencelab with the module; it runs with make e2e")
		}
		lint := exec.CommandContext(t.Context(), "/proc/self/exe")
		lint.Args, lint.Env = []string{clone.Command, "lint", about}, append(os.Environ(), ours(t))
		if said, err := lint.CombinedOutput(); err != nil || !strings.Contains(string(said), "valid, 0 warnings") {
			t.Errorf("%v:\n%s", err, said)
		}
	})
}

// TestAdministratorsComeAgain: an API server that has too much to do says so in plain text, and
// when to come again. Any other refusal of its is an error.
func TestAdministratorsComeAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked++; {
		case r.URL.Path == "/refused":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"message":"not allowed"}`)
		case asked < 3:
			w.Header().Set("Retry-After", "0")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, `{"answer":42}`)
		}
	}))
	defer server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/busy": "{'answer': 42}", "/refused": "GET /refused: not allowed"} {
		python := exec.CommandContext(t.Context(), "python3", "-B", "-c", "import kube; print(kube.ask('GET', '"+path+"'))")
		python.Env = append(os.Environ(), "PYTHONPATH=systems", "NAMESPACE=default", "API_SERVER="+server.URL,
			"API_CA="+dir+"/cert", "API_CERT="+dir+"/cert", "API_KEY="+dir+"/key")
		if said, _ := python.CombinedOutput(); !strings.Contains(string(said), want) {
			t.Errorf("%s: got %s, want %q", path, said, want)
		}
	}
}

// ends is how a run in the lab is to end.
func ends(code int, says string) func(int, string) bool {
	return func(ended int, said string) bool { return ended == code && strings.Contains(said, says) }
}

// inLab plays a story in the lab, and returns the exit code and the output. If the result is not as
// expected and the lab itself got too little of its machine, it plays the story once more, alone.
func inLab(t *testing.T, asExpected func(code int, said string) bool, story string, flags ...string) (code int, said string) {
	t.Helper()
	out := t.TempDir()
	if results := os.Getenv("FENCELAB_OUT"); results != "" {
		out = filepath.Join(results, strings.ReplaceAll(t.Name(), "/", "-"))
		t.Attr("artifacts", out)
	}
	code, said = tellInLab(t, out, "", story, flags...)
	if why := tooSlow(t, out); why != "" && !asExpected(code, said) {
		t.Attr("repeated", "the machine was too slow: "+why)
		t.Logf("it is told once more, alone, since it ended with %d:\n%s", code, said)
		code, said = tellInLab(t, out, slots.Last, story, flags...)
	}
	if code == exit.Unknown {
		t.Attr("verdict", "unknown")
	}
	return code, said
}

// tooSlow returns the parts of a run's reports that say how the machine may have spoilt it.
func tooSlow(t *testing.T, out string) string {
	t.Helper()
	var why string
	for _, pattern := range []string{"report.json", "*/report.json"} {
		files, _ := filepath.Glob(filepath.Join(out, pattern)) // the patterns are good ones
		for _, file := range files {
			var said struct {
				TooSlow string `json:"tooSlow"`
			}
			text, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(text, &said)
			}
			if err != nil {
				t.Error(err)
			}
			why = cmp.Or(why, said.TooSlow)
		}
	}
	return why
}

// tellInLab runs a story in the lab once, and waits as long as the run says something new. turn is
// how it takes its slots.
func tellInLab(t *testing.T, out, turn, story string, flags ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{clone.Command, "run", story, "--backend", "lab", "--out", out}, flags...)
	cmd.Env = append(os.Environ(), ours(t), slots.Variable+"="+turn, container.Variable+"="+t.TempDir()) // and no images of the user's
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }                                // it cleans up
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	run := &labRun{cmd: cmd, log: log.Name(), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the code says how it ended
		close(run.done)
	}()
	if !await(patience, func() any { return run.said() }, run.over) {
		cancel()
		t.Errorf("nothing has moved for %v", patience)
	}
	<-run.done
	return cmd.ProcessState.ExitCode(), run.said()
}
