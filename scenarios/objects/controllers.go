package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Names of the stand-ins for what a cluster does by itself.
const (
	nodeLifecycle      = "nodelifecycle"
	workloadController = "workload"
)

// missedLeases is the number of Leases that a kubelet may miss before its Node is no
// longer Ready.
const missedLeases = 4

// GracePeriod is how old the Lease of a Node may grow before it is no longer Ready.
func GracePeriod(spec *scenarios.Spec) time.Duration {
	return missedLeases * time.Duration(spec.Topology.Lease)
}

// Registered is the name by which a controller is known of which a story may have several.
func Registered(set *controllers.Set, name string) string {
	if _, err := set.Lookup(name); err != nil {
		return history.ControllerOf(name)
	}
	return name
}

// Controllers returns the controllers of a run: those that the scenario lists,
// and the stand-ins that every cluster has.
func Controllers(set *controllers.Set, spec *scenarios.Spec) ([]controllers.Selection, error) {
	listed := slices.Clone(spec.Controllers)
	has := func(name string) bool {
		return slices.ContainsFunc(listed, func(c scenarios.Controller) bool { return c.Name == name })
	}
	add := func(name string, settings any) {
		if has(name) {
			return
		}
		data, err := json.Marshal(settings)
		if err != nil {
			panic(fmt.Sprintf("settings of %s: %v", name, err)) // unreachable: maps of strings
		}
		listed = append(listed, scenarios.Controller{Name: name, Settings: data})
	}
	volume := spec.Topology.Workload.Volume
	lifecycle := map[string]any{"nodeMonitorGracePeriod": GracePeriod(spec).String()}
	if volume != nil {
		lifecycle["noExecute"] = true
		for _, r := range set.All() {
			if r.ForVolumes {
				add(r.Name, map[string]any{})
			}
		}
	}
	add(nodeLifecycle, lifecycle)
	if host := spec.Topology.Workload.Host; host != "" {
		settings := map[string]string{
			"name": WorkloadName, "namespace": Namespace, "preferredNode": spec.Topology.NodeOf(host), "quarantine": time.Duration(spec.Topology.PodGC).String(),
		}
		if stops := spec.Topology.Workload.Stops; stops != "" {
			settings["stops"] = stops
		}
		if volume != nil { // who collects the Pod is podgc
			settings["volume"] = volume.Name
		}
		add(workloadController, settings)
	}
	var chosen []controllers.Selection
	for _, c := range listed {
		if c.Pods != nil {
			chosen = append(chosen, controllers.Selection{Registration: controllers.Registration{
				Name: c.Name, Place: controllers.EveryHost, FeedsWatchdog: c.Pods.FeedsWatchdog,
			}})
			continue
		}
		if c.Program != nil {
			selection := controllers.Selection{Registration: controllers.Registration{
				Name: c.Name, Place: controllers.Cluster, Plays: controllers.Part(c.Plays),
			}}
			if _, err := set.Lookup(c.Name); err == nil && c.Program.TakesSettings() {
				replaced, err := set.Select(c.Name, c.Settings, nil)
				if err != nil {
					return nil, err
				}
				selection.Settings = replaced.Settings // its guarantees are judged by these times
			}
			chosen = append(chosen, selection)
			continue
		}
		var overlay []controllers.Rule
		for _, rule := range c.Overlay {
			overlay = append(overlay, controllers.Rule{When: rule.When, Then: rule.Then})
		}
		selection, err := set.Select(Registered(set, c.Name), c.Settings, overlay)
		selection.Name = c.Name
		if err != nil && c.ComesWithSystem() {
			return nil, fmt.Errorf("choose the controller %s: a system brings what plays %s; name one by --system", c.Name, c.Plays)
		}
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, selection)
	}
	return chosen, nil
}
