// Package front holds the parts that the network services of BMCs share to protect themselves from
// clients that may be slow, broken or hostile.
package front

import (
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Limits on what a client may send, and for how long.
const (
	MaxBody   = 64 << 10
	MaxHeader = 16 << 10
	Timeout   = 10 * time.Second
)

// ReadBody reads to the end, without which net/http doesn't notice that a client
// leaves while its request hangs. After an error, which is os.ErrDeadlineExceeded for a
// body that doesn't come, the connection ends with the answer.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, err
	}
	if len(r.TransferEncoding) > 0 {
		// It may have come with a Content-Length, which net/http takes away: then where
		// the next request begins is a matter of opinion (RFC 9112, 6.1).
		w.Header().Set("Connection", "close")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		// Without this net/http waits for the rest, and without the deadline for ever.
		w.Header().Set("Connection", "close")
		return nil, err
	}
	answering(r)
	return body, c.SetReadDeadline(time.Time{})
}

// crossOrigin knows the requests that another site's page has a browser send.
var crossOrigin = http.NewCrossOriginProtection()

// CrossSite reports whether a request changes something and was sent by a browser for a page of
// another site.
func CrossSite(r *http.Request) bool { return crossOrigin.Check(r) != nil }

// IsJSON is strict also because a web page can't send this type to a loopback
// address without being asked first.
func IsJSON(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// IsLocal reports whether a Host header names a loopback address.
func IsLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}
