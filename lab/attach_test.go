package lab_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
)

// TestClusterOfSomebodysOwn plays stories in a cluster that exists already, with model hosts.
// Afterwards nothing may be left in the cluster, and nothing that was there may have been touched.
func TestClusterOfSomebodysOwn(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	theirs, err := cluster.Launch(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := theirs.Stop(); err != nil {
			t.Error(err)
		}
	}()
	text, err := cluster.Kubeconfig(theirs.Config())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	somebody, err := client.New(theirs.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A Node without a kubelet, which a stand-in that saw it would taint.
	if err := somebody.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}); err != nil {
		t.Fatal(err)
	}
	var before corev1.Node
	if err := somebody.Get(t.Context(), client.ObjectKey{Name: "theirs"}, &before); err != nil {
		t.Fatal(err)
	}
	models := asProcesses()
	models.Processes = false
	for story, o := range map[string]lab.Options{
		"machine-remediation/cut-off-host.yaml":                        models,
		"machine-remediation/wrong-deletes-node-before-power-off.yaml": asProcesses(),
	} {
		t.Run(filepath.Base(story), func(t *testing.T) {
			o.Hosts, o.Cluster, o.Kubeconfig, o.Log = lab.Model, lab.Kubeconfig, file, t.Output()
			plan := compile(t, story)
			plan.Spec.Limits.Step = scenarios.Duration(15 * time.Second)
			outcome, err := play.Run(t.Context(), plan, lab.New(o), nil)
			if err != nil {
				t.Fatal(err)
			}
			if mismatch := outcome.Meets(); mismatch != "" {
				t.Errorf("%s\n\n%s", mismatch, report.Brief(outcome, "", ""))
			}
		})
	}
	var nodes corev1.NodeList
	if err := somebody.List(t.Context(), &nodes); err != nil || len(nodes.Items) != 1 || nodes.Items[0].ResourceVersion != before.ResourceVersion {
		t.Errorf("the Nodes afterwards are %v: %v", nodes.Items, err)
	}
	var secrets corev1.SecretList
	if err := somebody.List(t.Context(), &secrets, client.HasLabels{cluster.Label}); err != nil || len(secrets.Items) > 0 {
		t.Errorf("left are the Secrets %v: %v", secrets.Items, err)
	}
}
