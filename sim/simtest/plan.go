// Package simtest loads plans for the tests of the simulator and of its searches.
package simtest

import (
	"os"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// Plan returns the plan of a scenario file, with the seed 1.
func Plan(t testing.TB, file string) *scenarios.Plan {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Compile(t, file, string(data))
}

// Plans returns the plans of a scenario file, one for each cell of its matrix, with the seed 1.
func Plans(t testing.TB, path string) []*scenarios.Plan {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := file.LoadCells(path, data, objects.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var plans []*scenarios.Plan
	for _, scenario := range cells {
		plan, err := scenarios.Compile(scenario, 1)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	return plans
}

// Compile returns the plan of a scenario's text, with the seed 1.
func Compile(t testing.TB, path, text string) *scenarios.Plan {
	t.Helper()
	scenario, err := file.Load(path, []byte(text), objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
