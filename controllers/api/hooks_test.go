package api

import (
	"reflect"
	"strings"
	"testing"
)

func TestDeletionHooks(t *testing.T) {
	const drain, terminate = string(PreDrain), string(PreTerminate)
	annotations := map[string]string{
		drain + "/move-the-app": "app-controller",
		drain + "/backup":       "",
		drain:                   "somebody",
		drain + "age/of-a-lake": "no hook at all",
		terminate + "/" + strings.Repeat("n", 63):                           strings.Repeat("o", 1<<16),
		"pre-drain.hook.machine.cluster-api.x-k8s.io/migrate-important-app": "the example of seed 003",
		"example.com/note": "",
	}
	if got, want := DeletionHooks(annotations, PreDrain), []DeletionHook{
		{drain, "somebody"}, {drain + "/backup", ""}, {drain + "/move-the-app", "app-controller"},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("before the drain %v, want %v", got, want)
	}
	if got := DeletionHooks(annotations, PreTerminate); len(got) != 1 || len(got[0].Owner) != 1<<16 {
		t.Errorf("before the termination %v", got)
	}
	if got := DeletionHooks(nil, PreDrain); got != nil {
		t.Errorf("of nothing %v", got)
	}
}

func TestMisspelledHook(t *testing.T) {
	for key, want := range map[string]bool{
		"pre-drain.delete.hook.machine.cluster.x-k8s.io/a":            false,
		"pre-terminate.delete.hook.machine.cluster.x-k8s.io":          false,
		"pre-drain.delete.hook.machine.cluster-api.x-k8s.io/a":        true,
		"pre-drain.hook.machine.cluster-api.x-k8s.io/a":               true,
		"pre-terminate.hook.machine.cluster-api.x-k8s.io/a":           true,
		"pre-delete.delete.hook.machine.cluster.x-k8s.io/a":           true,
		"hook.machine.cluster.x-k8s.io":                               true,
		"example.com/pre-drain.delete.hook.machine.cluster.x-k8s.io":  false,
		"reboot.metal3.io/pre-drain.hook.machine.cluster-api.x-k8s.i": false,
	} {
		if got := MisspelledHook(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
}
