package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

func marginCommand() *cobra.Command {
	var format string
	var seed uint64
	var measured []string
	var set map[string]string
	cmd := &cobra.Command{
		Use:   "margin FILE...",
		Short: "Say how near each guarantee of a scenario is to being broken",
		Long: `Margin makes each step of a scenario late, one at a time, in the simulator. For each guarantee
that orders two events, or bounds the time between them, it says how near these come, from
which lateness of which step on the guarantee is broken, and which setting governs that; the
tightest first. With --measured it puts the margins of runs that were saved beside these, such
as those of a lab.`,
		Example: "  fencelab margin scenarios/catalog/machine-remediation/bmc-ac-loss.yaml --measured out",
		Args:    scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := file.LoadFiles(args, Vocabulary(), set)
			if err != nil {
				return exit.BadInput(err)
			}
			simulator, err := sim.New()
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			for _, s := range loaded { // before what takes minutes
				runs, err := (&report.Margins{Scenario: s.Metadata.Name}).Measure(measured)
				if err == nil && runs == 0 && len(measured) > 0 {
					err = fmt.Errorf("there is no run of %s in %s: save some with run --out", s.Metadata.Name, strings.Join(measured, ", "))
				}
				if err != nil {
					return exit.BadInput(err)
				}
			}
			var all []*report.Margins
			for _, s := range loaded {
				plan, err := scenarios.Compile(s, seed)
				if err != nil {
					return exit.Coded(exit.Internal, err)
				}
				found, benign, err := search.Margin(cmd.Context(), simulator, plan)
				switch {
				case err != nil:
					return exit.Coded(exit.Internal, err)
				case found == nil:
					code := play.CodeOfOutcome(benign)
					if code == exit.Held { // a violation is expected
						code = exit.Invalid
					}
					return exit.Coded(code, fmt.Errorf("%s: its default schedule doesn't hold, so that there is no margin; run it", s.Metadata.Name))
				}
				if _, err := found.Measure(measured); err != nil {
					return exit.BadInput(err)
				}
				if all = append(all, found); format == "json" {
					continue
				}
				if err := found.Text(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			if cmd.Context().Err() != nil {
				return exit.Coded(exit.Unknown, errors.New("interrupted: the margins are of the steps that were tried"))
			}
			if format != "json" {
				return nil
			}
			data, err := json.MarshalIndent(all, "", "  ")
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", data)
			}
			return err
		},
	}
	flags := cmd.Flags()
	choose(cmd, &format, "output", "o", "output format: text or json", choice{of: []string{"text", "json"}})
	flags.StringSliceVar(&measured, "measured", nil, "directory with saved runs, whose margins are shown beside; may be repeated")
	flags.StringToStringVar(&set, "set", nil, "parameter of the scenarios, as NAME=VALUE, overriding their matrices; may be repeated")
	flags.Uint64Var(&seed, "seed", 1, "seed for the choices of the scenario")
	return cmd
}
