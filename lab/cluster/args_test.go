package cluster

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestArgs(t *testing.T) {
	const golden = "testdata/args.golden"
	var got string
	for _, c := range []struct {
		name string
		args []string
	}{
		{"etcd", etcdArgs()}, {"kube-apiserver", apiServerArgs(6443, new(Options))},
		{"kube-controller-manager", controllerManagerArgs(&Standard{GracePeriod: 4 * time.Second})}, {"kube-scheduler", schedulerArgs()},
		{"csi-attacher", attacherArgs(new(Standard), "/lab/csi.sock")},
	} {
		got += c.name + "\n  " + strings.Join(c.args, "\n  ") + "\n"
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("command lines (-golden +now); after a look at each, rewrite them with -update:\n%s", diff)
	}
}
