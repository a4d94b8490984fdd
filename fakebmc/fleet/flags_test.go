package fleet

import (
	"crypto/tls"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVendorsShapes serves what old and new BMCs speak, and looks at what a client gets.
func TestVendorsShapes(t *testing.T) {
	for _, c := range []struct {
		flags []string
		speak map[uint16]bool // what a client that speaks only that gets
	}{
		{[]string{"--tls"}, map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{[]string{"--tls-versions", "1.0"}, map[uint16]bool{tls.VersionTLS10: true, tls.VersionTLS11: false, tls.VersionTLS12: false}},
		{[]string{"--tls-versions", "1.0-1.2"}, map[uint16]bool{tls.VersionTLS10: true, tls.VersionTLS12: true, tls.VersionTLS13: false}},
		{[]string{"--tls-versions", "1.3"}, map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true}},
	} {
		var o Options
		if err := o.Flags().Parse(append(c.flags, "--fake", "1", "--listen", "127.0.0.1:0")); err != nil {
			t.Fatal(err)
		}
		ready, stop := run(t, o)
		address := regexp.MustCompile(`https://([0-9.:]+)`).FindStringSubmatch(ready)
		if address == nil {
			t.Fatalf("%v: no address in %q", c.flags, ready)
		}
		for version, want := range c.speak {
			conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", address[1], &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
			if err == nil {
				conn.Close()
			}
			if (err == nil) != want {
				t.Errorf("%v: a client of %s: %v", c.flags, tls.VersionName(version), err)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestFlagsThatMakeNoSense are told with what would.
func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"--tls-versions 1.4", "one of 1.0, 1.1, 1.2 and 1.3"},
		{"--tls-versions 1.3-1.0", "the older one first"},
		{"--tls-versions ssl3-1.0", "one of 1.0"},
		{"--ipmi-suites three", `"three" is no number`},
	} {
		var o Options
		if err := o.Flags().Parse(strings.Fields(c.flags)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.flags, err, c.want)
		}
	}
	var o Options
	if err := o.Flags().Parse([]string{"--ipmi-suites", "3", "--ipmi-suites", "17", "--max-sessions", "4"}); err != nil || !slices.Equal(o.Suites, []int{3, 17}) || o.MaxSessions != 4 {
		t.Errorf("%v %v %d", err, o.Suites, o.MaxSessions)
	}
}
