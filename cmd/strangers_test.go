package cmd

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestStrangersAreListed: the document says what each flag of another emulator is here.
func TestStrangersAreListed(t *testing.T) {
	page, err := os.ReadFile("../docs/fakebmc.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strangers {
		flag := "`" + s.name + "`"
		if s.name == "" {
			flag = "`-" + s.shorthand + "`"
		} else if s.same != "" || !strings.Contains(string(page), flag) {
			flag = "`--" + s.name + "`"
		}
		if !strings.Contains(string(page), flag) {
			t.Errorf("docs/fakebmc.md has no %s of %s", flag, s.of)
		}
	}
}

// TestStrangersAreAdvised: flags and commands of others are answered by what to use, and those that
// mean one of ours are taken for it.
func TestStrangersAreAdvised(t *testing.T) {
	for args, want := range map[string]string{
		"--config x": "--config is sushy-emulator's: its settings are flags here", "--fake": "--fake 1", "add node-1": "add is VirtualBMC's: use --libvirt",
		"--password x": "--password is VirtualBMC's: set FENCELAB_BMC_PASSWORD", "create bml": "create is vbmctl's: define", "-c x": "-c is vbmctl's: its settings",
		"--ssl-certificate x --fake 1": "--tls-certificate and --tls-key go together", "-i 127.0.0.1 -p x --fake 1": "the port must be a number", "-p 1 --listen :0 --fake 1": "leave --interface and --port out",
		"--nonsense": "unknown flag: --nonsense", "nonsense": "unknown command",
	} {
		var talk strings.Builder
		if code := Execute(t.Context(), append([]string{"bmc"}, strings.Fields(args)...), nil, io.Discard, &talk); code != 3 || !strings.Contains(talk.String(), want) {
			t.Errorf("%s: %d %s, want %s", args, code, talk.String(), want)
		}
	}
}
