package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
)

// TestPage: the page has each search and its parts, nothing was violated, and the smallest search
// comes out as the page says, but for the time that it takes.
func TestPage(t *testing.T) {
	t.Chdir("../..")
	data, err := os.ReadFile("docs/measured/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	forecasts, estimates, _ := strings.Cut(string(data), "## Estimates")
	smallest := searches[0]
	c, err := smallest.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := c.row()
	if all, _, _ := strings.Cut(row, "% |"); !strings.Contains(forecasts, all[:strings.LastIndex(all, "|")]) {
		t.Errorf("the page doesn't have %s", row)
	}
	for _, part := range c.parts() {
		if row := c.estimates(part); !strings.Contains(estimates, row) {
			t.Errorf("the page doesn't have %s", row)
		}
	}
	for _, f := range searches {
		_, line, ok := strings.Cut(forecasts, fmt.Sprintf("| `%s` | %d | %s |", path.Base(f.story), f.depth, f.bound()))
		line, _, _ = strings.Cut(line, "\n")
		if cells := strings.Split(line, "|"); !ok || len(cells) != 12 || strings.TrimSpace(cells[4]) != "0" || strings.TrimSpace(cells[5]) != "0" {
			t.Errorf("of %s with %d deviations the page says %q; it should say that none was violated, and none unknown", f.story, f.depth, line)
		}
		if !strings.Contains(estimates, fmt.Sprintf("| `%s`, %d | faults |", path.Base(f.story), f.depth)) {
			t.Errorf("there are no estimates of %s with %d deviations", f.story, f.depth)
		}
	}
}
