package file_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
)

// TestImagesOfPrograms: an image on this machine is found from the file, a reference stays what it
// is, and arguments are for what the image runs.
func TestImagesOfPrograms(t *testing.T) {
	const text = aSystem + "    - {name: acme-power, plays: power, program: {image: ./layout, args: [serve, '--port=${PORT}'], installs: ['image:/crds', role.yaml]}}\n" +
		"  bmc: {image: acme/bmc:1, args: [--hosts, '${HOSTS}']}\n  ironic: {image: ironic.tar}\n"
	s, dir, err := system(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Spec.Ironic.Image, scenarios.Image(filepath.Join(dir, "ironic.tar")); got != want {
		t.Errorf("Ironic comes from %s, want %s", got, want)
	}
	for _, want := range []string{filepath.Join(dir, "layout"), filepath.Join(dir, "ironic.tar")} {
		if !slices.Contains(s.Files(), want) {
			t.Errorf("its files are %q, without %s", s.Files(), want)
		}
	}
	if slices.ContainsFunc(s.Files(), func(f string) bool { return strings.Contains(f, "acme/bmc") }) {
		t.Errorf("its files are %q: a reference is none", s.Files())
	}
	variables := map[string]string{"PORT": "1234", "HOSTS": "hosts"}
	if diff := cmp.Diff(scenarios.Call{Args: []string{"serve", "--port=1234"}, Env: []string{"HOSTS=hosts", "PORT=1234"}}, s.Spec.Controllers[4].Program.In(variables)); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"an image's file without one":    {"image: ./layout, args: [serve, '--port=${PORT}'], ", "command: [acme], ", "spec.controllers[4].program.installs[0]: \"image:/crds\" is in an image, and there is none"},
		"arguments without an image":     {"image: ./layout, ", "command: [acme], ", "spec.controllers[4].program.args: are for what an image runs, and there is none"},
		"arguments beside a command":     {"image: ./layout, ", "image: ./layout, command: [acme], ", "spec.controllers[4].program.args: are for what the image runs by itself"},
		"an Ironic in two places":        {"{image: ironic.tar}", "{image: ironic.tar, bin: bin}", "spec.ironic.image: its executables are in bin already"},
		"BMCs without an executable":     {"image: acme/bmc:1, args: [--hosts, '${HOSTS}']", "env: {A: b}", "spec.bmc: has neither a command nor an image"},
		"BMCs' arguments for no image":   {"image: acme/bmc:1, ", "", "spec.bmc"},
		"an unknown variable among them": {"${HOSTS}", "${HOST}", "HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := system(t, strings.Replace(text, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "acme.yaml:") {
				t.Errorf("got %v, want a position and %q", err, c.want)
			}
		})
	}
}

// TestUseImages: an image takes the place of what a program runs, which keeps its arguments.
func TestUseImages(t *testing.T) {
	const text = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer.}
spec:
  controllers:
    - {name: fencer, plays: remediation, program: {command: [./acme, "--port=${PORT}"]}}
`
	const more = text + "    - {name: checker, plays: healthcheck, program: {image: acme/check:1, args: [-v]}}\n  bmc: {command: [bmc, --all]}\n"
	for _, c := range []struct {
		text  string
		given []string
		err   string
		want  func(*scenarios.System)
	}{
		{text, []string{"acme/fencer@sha256:1111111111111111111111111111111111111111111111111111111111111111"}, "", func(s *scenarios.System) {
			p := s.Spec.Controllers[0].Program
			p.Command, p.Args, p.Image = nil, []string{"--port=${PORT}"}, "acme/fencer@sha256:1111111111111111111111111111111111111111111111111111111111111111"
		}},
		{more, []string{"checker=./dir", "bmc=bmc.tar"}, "", func(s *scenarios.System) {
			s.Spec.Controllers[1].Program.Image = "/here/dir"
			s.Spec.BMC.Command, s.Spec.BMC.Args, s.Spec.BMC.Image = nil, []string{"--all"}, "/here/bmc.tar"
		}},
		{more, []string{"acme/fencer:2"}, "--image acme/fencer:2: the system acme has 3 programs; say whose it is, as NAME=IMAGE, of bmc, checker, fencer", nil},
		{more, []string{"fence=acme/fencer:2"}, "--image fence=acme/fencer:2: the system acme has no program fence; choose bmc, checker, fencer", nil},
		{more, []string{"fencer="}, "--image fencer=: name an image", nil},
	} {
		want, _, err := system(t, c.text)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := system(t, c.text)
		if err != nil {
			t.Fatal(err)
		}
		err = got.UseImages(c.given, "/here")
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%q: %v, want %s", c.given, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.given, err)
		}
		c.want(want)
		got.File, want.File = "", ""
		for _, s := range []*scenarios.System{got, want} {
			for i := range s.Spec.Controllers {
				s.Spec.Controllers[i].Program.Dir = ""
			}
			if s.Spec.BMC != nil {
				s.Spec.BMC.Dir = ""
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", c.given, diff)
		}
	}
}
