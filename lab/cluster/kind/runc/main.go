// The command runc stands before the real one where a container may want more than whoever starts
// it has: root of a machine that is itself a container often lacks a capability, which "privileged"
// asks for all the same, and may not lower an OOM score. It takes such wishes out of what it is
// asked to run, and then becomes the real runc.
//
// Where nothing is lacking it changes nothing. FENCELAB_RUNC names the real one; else it is
// /usr/sbin/runc.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	fmt.Fprintln(os.Stderr, "before runc:", become(os.Args))
	os.Exit(1)
}

// become returns only if it fails.
func become(args []string) error {
	have, err := possible()
	if err != nil {
		return err
	}
	if bundle := option(args, "--bundle", "-b"); bundle != "" {
		if err := edit(filepath.Join(bundle, "config.json"), func(spec map[string]any) { confine(spec["process"], have) }); err != nil {
			return err
		}
	}
	if process := option(args, "--process", "-p"); process != "" {
		if err := edit(process, func(p map[string]any) { confine(p, have) }); err != nil {
			return err
		}
	}
	real := cmp.Or(os.Getenv("FENCELAB_RUNC"), "/usr/sbin/runc")
	return fmt.Errorf("execute %s: %w", real, syscall.Exec(real, args, os.Environ()))
}

// option is the value of an option of create, run or exec, in any of the forms that runc knows.
func option(args []string, names ...string) string {
	for i, arg := range args {
		for _, name := range names {
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
			if value, is := strings.CutPrefix(arg, name+"="); is {
				return value
			}
		}
	}
	return ""
}

// edit changes a file of JSON. Numbers stay as they were written.
func edit(file string, change func(map[string]any)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	change(content)
	if text, err = json.Marshal(content); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// means holds the capabilities and the lowest OOM score that this process can give.
type means struct {
	capabilities map[string]bool
	oomScore     int64 // the lowest
}

// capResource lets a process lower its OOM score and raise its limits.
const capResource = "CAP_SYS_RESOURCE"

func possible() (means, error) {
	m := means{capabilities: make(map[string]bool), oomScore: -1000}
	for number, name := range capabilities {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if err == nil && has == 1 { // a kernel that is older than the capability answers EINVAL
			m.capabilities[name] = true
		}
	}
	if !m.capabilities[capResource] {
		text, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			return m, err
		}
		if m.oomScore, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return m, err
		}
	}
	return m, nil
}

// confine takes out of a process what can't be given to it.
func confine(process any, have means) {
	p, ok := process.(map[string]any)
	if !ok {
		return
	}
	if sets, ok := p["capabilities"].(map[string]any); ok {
		for name, set := range sets {
			wanted, _ := set.([]any)
			given := make([]any, 0, len(wanted))
			for _, c := range wanted {
				if c, ok := c.(string); ok && have.capabilities[c] {
					given = append(given, c)
				}
			}
			sets[name] = given
		}
	}
	if score, ok := p["oomScoreAdj"].(json.Number); ok {
		if wanted, err := score.Int64(); err == nil && wanted < have.oomScore {
			p["oomScoreAdj"] = have.oomScore
		}
	}
	if !have.capabilities[capResource] {
		delete(p, "rlimits") // those that it has stay
	}
}
