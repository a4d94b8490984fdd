package scenarios

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Twin returns the plan with fencelab's own controllers in the parts of those under test, and
// without the mistakes that those make on purpose. Instead maps the names of the plan's controllers
// to those of their replacements. The twin has no deviations, since those of the plan name steps
// of other controllers.
func (p *Plan) Twin() (twin *Plan, instead map[string]string, err error) {
	instead = make(map[string]string)
	var chosen []Controller
	taken := make(map[string]bool)
	for i := range p.Spec.Controllers {
		c := &p.Spec.Controllers[i]
		part := PartOf(c)
		own := ownIn(part)
		if c.Name == watchdogController {
			own = watchdogController
		}
		if own == "" {
			// a stand-in, or one without a counterpart among fencelab's own
			chosen = append(chosen, *c)
			continue
		}
		instead[c.Name] = own
		for j, part := range append([]string{part}, c.Also...) {
			name := own
			if j > 0 {
				name = ownIn(part)
			}
			if name != "" {
				name += strings.TrimPrefix(c.Name, p.Spec.FirstOf(c))
			}
			if name == "" || taken[name] {
				continue
			}
			taken[name] = true
			right := Controller{Name: name, Replicas: c.Replicas, Hosts: c.Hosts, RateLimit: c.RateLimit}
			if c.Name == name && c.Program == nil && c.Pods == nil {
				right.Settings = c.Settings
			}
			chosen = append(chosen, right)
		}
	}
	if len(instead) == 0 {
		return nil, nil, fmt.Errorf("play the twin of %s: none of its controllers plays a part in which fencelab has one of its own; give one plays: PART", p.Metadata.Name)
	}
	spec, err := renamed(&p.Spec, instead)
	if err != nil {
		return nil, nil, fmt.Errorf("play the twin of %s: %w", p.Metadata.Name, err)
	}
	spec.Controllers, spec.Expect.Violated = chosen, ""
	twin = &Plan{APIVersion: p.APIVersion, Kind: p.Kind, Metadata: p.Metadata, Seed: p.Seed, Spec: *spec}
	return twin, instead, nil
}

// Renamed returns the name of a controller's process when controllers bear other names:
// worker-1.team-2 becomes worker-1.poisonpill-2 if team is called poisonpill.
func Renamed(process string, names map[string]string) string {
	host, name, onHost := strings.Cut(process, ".")
	if !onHost {
		host, name = "", process
	}
	base, instance := name, ""
	if i := strings.LastIndexByte(name, '-'); i > 0 && names[name] == "" {
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			base, instance = name[:i], name[i:]
		}
	}
	other := names[base]
	switch {
	case other == "":
		return process
	case onHost:
		return host + "." + other + instance
	}
	return other + instance
}

// renamed returns a copy of a story in which controllers have other names wherever it names
// them.
func renamed(spec *Spec, names map[string]string) (*Spec, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	rename(tree, "", names)
	if data, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	story := new(Spec)
	return story, json.Unmarshal(data, story)
}

// rename changes the names of controllers in a tree of JSON, where the field above says that
// there are any.
func rename(tree any, field string, names map[string]string) any {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree { // order does not matter: each is changed by itself
			tree[key] = rename(value, key, names)
		}
	case []any:
		for i := range tree {
			tree[i] = rename(tree[i], field, names)
		}
	case string:
		switch field {
		case "controller", "actor":
			return Renamed(tree, names)
		case "from", "to", "between":
			if process, ok := strings.CutPrefix(tree, ControllerEnd("")); ok {
				return ControllerEnd(Renamed(process, names))
			}
		}
	}
	return tree
}
