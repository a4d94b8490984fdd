package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// Tracing records what the controllers within this process have in their caches and decide.
// For a controller that is a process of its own neither can be known here.
type Tracing struct {
	Trace    *objects.Trace
	Since    func() time.Duration
	Kinds    objects.Kinds
	Topology *scenarios.Topology
}

// decided returns a function that records the decisions of a process.
func (t *Tracing) decided(process string) func(keys []string, facts any, action string) {
	return func(keys []string, facts any, action string) {
		t.Trace.Decided(t.Since(), process, strings.Join(keys, " or "), facts, action)
	}
}

// follow records what reaches the cache of a process that is about to start with it.
func (t *Tracing) follow(ctx context.Context, process string, from cache.Cache, r controllers.Registration) error {
	t.Trace.Forgot(t.Since(), process)
	names := objects.NamesOf(t.Topology, nil)
	followed := make(map[*objects.Kind]bool)
	for _, example := range r.Cached() {
		kind, err := t.Kinds.Of(example)
		if err != nil || followed[kind] || kind.Changes == nil {
			continue // nothing that the report has lanes for
		}
		followed[kind] = true
		informer, err := from.GetInformer(ctx, example, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("follow what %s knows of %s: %w", process, kind.GVK.Kind, err)
		}
		learned := func(before, after any) {
			t.Trace.Learned(t.Since(), process, names, kind, held(before), held(after))
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { learned(nil, obj) },
			UpdateFunc: learned,
			DeleteFunc: func(obj any) { learned(obj, nil) },
		})
		if err != nil {
			return fmt.Errorf("follow what %s knows of %s: %w", process, kind.GVK.Kind, err)
		}
	}
	return nil
}

// held is the object that an informer hands over; nil if there is none.
func held(obj any) metav1.Object {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	object, _ := obj.(metav1.Object)
	return object
}
