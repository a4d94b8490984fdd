package redfish

import (
	"net"
	"strings"
	"testing"
)

func TestExposure(t *testing.T) {
	for _, c := range []struct {
		ip   string
		tls  bool
		warn bool
	}{
		{"127.0.0.1", false, false}, {"::1", false, false}, {"127.0.0.1", true, false}, {"192.0.2.1", true, false},
		{"192.0.2.1", false, true}, {"0.0.0.0", false, true}, {"::", false, true},
	} {
		text := exposure(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8000}, c.tls)
		if (text != "") != c.warn || c.warn && !strings.Contains(text, "without TLS") {
			t.Errorf("%s, TLS %v: %q", c.ip, c.tls, text)
		}
	}
}
