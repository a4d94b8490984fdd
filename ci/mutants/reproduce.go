package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/sim/corpus/source"
)

// realities are the mistakes that need a schedule to be seen, each with a story whose benign
// schedule doesn't show it and in which a single deviation does.
var realities = []struct{ mutant, story string }{
	{"remediation-acts-on-cache", "crash-before-deleting-the-node"},
	{"remediation-acts-on-cache", "capbm-167-decides-by-its-cache"},
	{"remediation-age-not-checked-again", "answer-ages-while-the-node-is-read"},
	{"remediation-node-error-is-absence", "cut-off-host"},
	{"remediation-read-error-is-absence", "three-hosts"},
	{"hold-request-time-ignored", "answer-from-an-old-reading"},
	{"reboot-patch-without-version", "deprovisioned-during-the-remediation"},
	{"reboot-called-off-at-once", "bmc-on-after-off-asked-again"},
	{"reboot-forgets-on-after-crash", "bmc-on-after-off-asked-again"},
	{"healthcheck-limit-rounds-up", "all-at-once"},
}

// reproduceAll prints a table of what the simulator finds and the lab reproduces.
func reproduceAll(ctx context.Context, all []Mutant, only, dir, right string, times int) error {
	fmt.Print("| mistake | story | deviation in the simulator | in the lab | breaks | reproduced |\n|---|---|---|---|---|---|\n")
	for _, c := range realities {
		i := slices.IndexFunc(all, func(m Mutant) bool { return m.ID == c.mutant })
		if i < 0 {
			return fmt.Errorf("reproduce mistakes: there is no mutant %s", c.mutant)
		}
		if !isChosen(only, c.mutant) {
			continue
		}
		binary, err := source.Build(ctx, ".", "./ci/mutants/reproduce", dir, c.mutant, all[i].Change)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, binary, "-right", right, "-story", c.story, "-times", fmt.Sprint(times))
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // its lab cleans up
		var r finding.Reproduced
		if err := finding.Ask(cmd, &r); err != nil {
			return fmt.Errorf("reproduce %s: %w", c.mutant, err)
		}
		os.Remove(binary)
		row := fmt.Sprintf("| %s | `%s` |", cell(all[i].Mistake), c.story)
		if r.Deed == "" {
			fmt.Println(row + " none that passes a gate | | | |")
			continue
		}
		answer := fmt.Sprintf("%d of %d", r.Times, r.Of)
		if r.Refused != "" {
			answer = "not told in the lab: " + cell(r.Refused)
		}
		if r.Diverged > 0 {
			answer += fmt.Sprintf(", diverged %d times", r.Diverged)
		}
		fmt.Printf("%s `%s` | `%s` | %s | %s |\n", row, cell(r.Deviation), cell(r.Deed), r.Broken, answer)
	}
	return nil
}
