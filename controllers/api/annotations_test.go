package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRebootMode(t *testing.T) {
	for _, tc := range []struct {
		value   string
		mode    RebootMode
		problem string
	}{
		{"", RebootSoft, ""},
		{"  ", RebootSoft, ""},
		{`{}`, RebootSoft, ""},
		{`{"mode":"hard"}`, RebootHard, ""},
		{`{'mode':'hard'}`, RebootHard, ""}, // the spelling of seeds 000 and 001
		{`{mode: hard}`, RebootHard, ""},
		{`{'mode':'soft'}`, RebootSoft, ""},
		{`{"mode":"hard","force":true}`, RebootHard, ""},
		{`{"mode":null}`, RebootSoft, ""},
		{`{"mode":"HARD"}`, RebootSoft, `"HARD" is neither`},
		{`{"mode":1}`, RebootSoft, `"1" is neither`},
		{`hard`, RebootSoft, "not a map"},
		{`[hard]`, RebootSoft, "not a map"},
		{`{"mode":{"a":1}}`, RebootSoft, "not a map"},
		{`{"mode":"hard"`, RebootSoft, "not a map"},
		{"6d5e2c0a-machine-uid", RebootSoft, "not a map"}, // content may be anything (seed 000)
	} {
		mode, err := ParseRebootMode(tc.value)
		if mode != tc.mode {
			t.Errorf("ParseRebootMode(%q) = %s, want %s", tc.value, mode, tc.mode)
		}
		if got := errText(err); (tc.problem == "") != (got == "") || !strings.Contains(got, tc.problem) {
			t.Errorf("ParseRebootMode(%q): error %q, want %q", tc.value, got, tc.problem)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRebootRequests(t *testing.T) {
	got := RebootRequests(map[string]string{
		"reboot.metal3.io/zebra": `{'mode':'hard'}`,
		"reboot.metal3.io":       "",
		"reboot.metal3.io/":      "",
		"reboot.metal3.iox":      "",
		"reboot.metal3.io/alpha": "",
		"other":                  "",
	})
	empty := RequestID("")
	want := []RebootRequest{
		{Annotation: "reboot.metal3.io", Mode: RebootSoft, ID: empty},
		{Annotation: "reboot.metal3.io/alpha", Key: "alpha", Mode: RebootSoft, ID: empty},
		{Annotation: "reboot.metal3.io/zebra", Key: "zebra", Mode: RebootHard, ID: RequestID(`{'mode':'hard'}`)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

func FuzzParseRebootMode(f *testing.F) {
	for _, seed := range []string{"", `{}`, `{"mode":"hard"}`, `{'mode':'soft'}`, `{mode: hard}`, "a: &a [*a]", "!!binary x", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		mode, err := ParseRebootMode(value)
		if mode != RebootSoft && mode != RebootHard {
			t.Fatalf("mode %q", mode)
		}
		if err != nil && mode != RebootSoft {
			t.Fatalf("a value that was not understood (%v) must mean soft, not %s", err, mode)
		}
		if again, _ := ParseRebootMode(value); again != mode {
			t.Fatalf("parsed twice: %s, then %s", mode, again)
		}
		if mode == RebootHard && !strings.Contains(value, "mode") {
			t.Fatalf("hard without a mode in %q", value)
		}
	})
}

func FuzzRebootRequests(f *testing.F) {
	f.Add("reboot.metal3.io", `{"mode":"hard"}`)
	f.Add("reboot.metal3.io/key", "")
	f.Add("reboot.metal3.io/", "x")
	f.Fuzz(func(t *testing.T, annotation, value string) {
		requests := RebootRequests(map[string]string{annotation: value})
		if IsRebootAnnotation(annotation) != (len(requests) == 1) {
			t.Fatalf("%q: IsRebootAnnotation and RebootRequests disagree", annotation)
		}
		for _, r := range requests {
			if r.Annotation != annotation || !strings.HasSuffix(annotation, r.Key) {
				t.Fatalf("%q parsed as %+v", annotation, r)
			}
		}
	})
}
