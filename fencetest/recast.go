package fencetest

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// recast puts controllers in the place of others, wherever a scenario names them, and a
// while before its first step.
func recast(scenario []byte, cast [][2]string, settle time.Duration) ([]byte, error) {
	if len(cast) == 0 && settle == 0 {
		return scenario, nil
	}
	var content map[string]any
	if err := yaml.Unmarshal(scenario, &content); err != nil {
		return nil, err
	}
	spec, _ := content["spec"].(map[string]any)
	listed, _ := spec["controllers"].([]any)
	for _, c := range listed {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		for _, role := range cast {
			if c["name"] != role[0] {
				continue
			}
			if c["overlay"] != nil {
				return nil, fmt.Errorf("the scenario makes the controller %s wrong on purpose, which is not possible with %s", role[0], role[1])
			}
			c["name"] = role[1]
			delete(c, "settings") // are the other's
			break
		}
	}
	for _, role := range cast {
		rename(spec["steps"], role[0], role[1])
		rename(spec["expect"], role[0], role[1])
	}
	if steps, ok := spec["steps"].([]any); ok && settle > 0 {
		spec["steps"] = append([]any{map[string]any{"name": "the controllers have taken over", "after": settle.String()}}, steps...)
	}
	return yaml.Marshal(content)
}

// rename renames the processes of a controller in a step: of several the second is NAME-2.
func rename(value any, of, by string) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			rename(item, of, by)
		}
	case map[string]any:
		for key, item := range v { // order does not matter: each by itself
			name, isText := item.(string)
			if !isText || key != "controller" && key != "actor" {
				rename(item, of, by)
				continue
			}
			if number, ok := strings.CutPrefix(name, of); ok && strings.Trim(number, "-0123456789") == "" {
				v[key] = by + number
			}
		}
	}
}
