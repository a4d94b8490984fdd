package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
)

// Controller is a controller of a run: what it is, and how it is set up.
type Controller struct {
	controllers.Registration
	Settings any
	Overlay  []controllers.Rule
}

// Names of the stand-ins for what a cluster does by itself.
const (
	nodeLifecycle = "nodelifecycle"
	workload      = "workload"
)

// missedLeases is how many Leases a kubelet may miss before its Node is no
// longer Ready.
const missedLeases = 4

// Controllers returns the controllers of a run: those that the scenario lists,
// and the stand-ins that every cluster has.
func Controllers(spec *scenarios.Spec) ([]Controller, error) {
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
	add(nodeLifecycle, map[string]string{"nodeMonitorGracePeriod": (missedLeases * time.Duration(spec.Topology.Lease)).String()})
	if host := spec.Topology.Workload.Host; host != "" {
		add(workload, map[string]string{"name": WorkloadName, "namespace": Namespace, "preferredNode": host})
	}
	var chosen []Controller
	for _, c := range listed {
		made, err := controller(c)
		if err != nil {
			return nil, fmt.Errorf("controller %s: %w", c.Name, err)
		}
		chosen = append(chosen, made)
	}
	return chosen, nil
}

func controller(c scenarios.Controller) (Controller, error) {
	registration, err := controllers.Lookup(c.Name)
	if err != nil {
		return Controller{}, err
	}
	made := Controller{Registration: registration}
	if registration.Settings != nil {
		made.Settings = registration.Settings()
		if len(c.Settings) > 0 {
			dec := json.NewDecoder(bytes.NewReader(c.Settings))
			dec.DisallowUnknownFields()
			if err := dec.Decode(made.Settings); err != nil {
				return Controller{}, fmt.Errorf("settings: %w", err)
			}
		}
	} else if len(c.Settings) > 0 {
		return Controller{}, fmt.Errorf("it has no settings")
	}
	for _, rule := range c.Overlay {
		made.Overlay = append(made.Overlay, controllers.Rule{When: rule.When, Then: rule.Then})
	}
	return made, registration.CheckOverlay(made.Overlay)
}
