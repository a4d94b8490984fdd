package tidy

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scenarios lists scenario files that say of themselves neither what they are nor what they are
// for, crashes at deeds without a name, and files of the catalogue that hide under another name
// than their scenario's.
func scenarios(t *tree) (problems []string, err error) {
	for _, name := range t.files {
		if !under(name, "scenarios/catalog") || path.Ext(name) != ".yaml" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.root, name))
		if err != nil {
			return nil, err
		}
		var file struct {
			Kind     string
			Metadata struct{ Name, Description string }
			Spec     struct {
				Steps []struct {
					Do struct {
						Crash struct {
							Deed       string
							Occurrence int
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if file.Kind != "Scenario" {
			continue
		}
		if strings.TrimSpace(file.Metadata.Description) == "" {
			problems = append(problems, fmt.Sprintf("%s: no metadata.description: nobody can tell what it shows, or when it may go", name))
		}
		for i, step := range file.Spec.Steps {
			if c := step.Do.Crash; c.Occurrence > 0 && c.Deed == "" {
				problems = append(problems, fmt.Sprintf("%s: step %d crashes at effect %d: name its deed, since others may come before it one day", name, i+1, c.Occurrence))
			}
		}
		if want := strings.TrimSuffix(path.Base(name), ".yaml"); file.Metadata.Name != want {
			problems = append(problems, fmt.Sprintf("%s: metadata.name is %q, not %q: reports name the scenario, and the file should be found by that", name, file.Metadata.Name, want))
		}
	}
	return problems, nil
}
