// Package guarantee has fencelab's guarantees about fencing: each is a claim and its checker, in a
// file of its own. Package invariant judges a history by them.
package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Every returns all invariants in the order of reports: safety first. The slice is shared.
func Every() []invariant.Invariant { return every() }

var every = sync.OnceValue(func() []invariant.Invariant {
	return []invariant.Invariant{
		fencedBeforeRelease, safeTimeKept, nodeDeletedBeforeBoot, atMostOne, oneWriter, releasedOnlyWhenOver, holdRespected, ownAnnotationsOnly, contentPreserved,
		hardTakesPriority, softHasItsTime, statusTruthful, claimIsTrue, noFalseFence, bystandersSpared, noRemediationStorm, hooksPauseDrain, hooksPauseTerminate, drainedBeforeInterrupted, infrastructureBeforeNode, noPanics,
		oneCyclePerRequest, OneFencingPerRequest, onlineRespected, unhealthyIsFenced, deprovisionClears, deletionEnds,
		powerRestored, nodeRestored, workloadRecovers, releasedInTime, annotationsCleared, nothingIsLeft,
	}
})

// All returns those that are about every story, and not about requests of a system's own. The slice
// is shared.
func All() []invariant.Invariant { return all() }

var all = sync.OnceValue(func() []invariant.Invariant {
	return slices.Clip(slices.DeleteFunc(slices.Clone(Every()), func(inv invariant.Invariant) bool { return inv.ID == OneFencingPerRequest.ID }))
})

// Always are the invariants that are judged whatever a scenario names.
func Always() []invariant.Invariant { return always() }

var always = sync.OnceValue(func() []invariant.Invariant {
	return slices.DeleteFunc(slices.Clone(All()), func(inv invariant.Invariant) bool { return inv.Never == "" })
})

// IsAlways reports whether the invariant with this ID is one of those.
func IsAlways(id string) bool {
	return slices.ContainsFunc(always(), func(inv invariant.Invariant) bool { return inv.ID == id })
}

// Lookup returns the invariant with an ID, or an error that names the nearest.
func Lookup(id string) (invariant.Invariant, error) {
	var ids []string
	for _, inv := range Every() {
		if inv.ID == id {
			return inv, nil
		}
		ids = append(ids, inv.ID)
	}
	hint := "the invariants are " + strings.Join(ids, ", ")
	if nearest := phrase.Nearest(id, ids); nearest != "" {
		hint = fmt.Sprintf("did you mean %q?", nearest)
	}
	return invariant.Invariant{}, fmt.Errorf("look up invariant %q: there is none; %s", id, hint)
}
