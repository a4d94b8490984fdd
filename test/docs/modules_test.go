package docs

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestModules shows that docs/code.md counts what a module gains by requiring fencelab, and that
// none of it is the lab's.
func TestModules(t *testing.T) {
	page, err := os.ReadFile("docs/code.md")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("docs/examples/team-fencer/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if says := fmt.Sprintf("import `fencetest` gains %d indirect requirements", strings.Count(string(mod), "// indirect")); !strings.Contains(string(page), says) {
		t.Errorf("docs/code.md doesn't say of a module: %s", says)
	}
	for _, labs := range []string{"sigs.k8s.io/kind", "gvisor.dev/gvisor", "libvirt.org/go", "go-containerregistry", "chromedp", "ginkgo"} {
		if strings.Contains(string(mod), labs) {
			t.Errorf("whoever imports fencetest gains %s, which only the lab and the tests of fencelab need", labs)
		}
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./fakebmc/bmctest")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var gains []string
	for _, module := range strings.Fields(string(out)) {
		if module != "github.com/fencelab/fencelab" && !slices.Contains(gains, module) {
			gains = append(gains, module)
		}
	}
	if !slices.Equal(gains, []string{"sigs.k8s.io/json"}) {
		t.Errorf("fakebmc/bmctest needs %s: docs/code.md says that sigs.k8s.io/json is all", gains)
	}
}
