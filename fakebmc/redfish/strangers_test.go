package redfish_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// as sends a request under another name than that of the service's address, as the
// browser of somebody does who looks at a stranger's page.
func (r *rig) as(host, method, path, body string, header ...string) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestForeignNames: without an account a service answers to loopback names only, or a
// stranger's page could give its own name the address (DNS rebinding).
func TestForeignNames(t *testing.T) {
	open, closed := newRig(t, redfish.Config{}, "node-1"), newRig(t, account, "node-1")
	for _, c := range []struct {
		host string
		ok   bool
	}{
		{"evil.example", false}, {"evil.example:80", false}, {"127.0.0.1.evil.example", false}, {"192.0.2.1", false},
		{"localhost", true}, {"LOCALHOST:8000", true}, {"[::1]", true}, {"127.0.0.9:1", true}, {"", true},
	} {
		for _, x := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", "/redfish/v1/", "", 200}, {"GET", systemURL, "", 200}, {"POST", resetURL, resetBody("On"), 204},
			{"POST", loginURL, `{"UserName": "a", "Password": "b"}`, 201}, {"PATCH", systemURL, `{"PowerRestorePolicy": "AlwaysOn"}`, 204},
		} {
			want := x.status
			if !c.ok {
				want = 403
			}
			if got := open.as(c.host, x.method, x.path, x.body, "Content-Type", "application/json"); got != want {
				t.Errorf("%s %s as %q: %d, want %d", x.method, x.path, c.host, got, want)
			}
		}
		if got := closed.as(c.host, "GET", "/redfish/v1/", ""); got != 200 { // a real BMC has a name
			t.Errorf("with an account, as %q: %d", c.host, got)
		}
	}
	if open.as("evil.example", "POST", resetURL, resetBody("ForceOff"), "Content-Type", "application/json"); open.state() != fakebmc.On {
		t.Errorf("the host is %s", open.state())
	}
}

func (r *rig) state() fakebmc.PowerState {
	p, err := r.hosts[0].PowerState()
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// TestOtherSites: what a page of another site has a browser send, without asking first,
// changes nothing.
func TestOtherSites(t *testing.T) {
	r := newRig(t, redfish.Config{Media: []string{"http://127.0.0.1:1/"}}, "node-1")
	insert, eject := mediaURL+"/Actions/VirtualMedia.InsertMedia", mediaURL+"/Actions/VirtualMedia.EjectMedia"
	if got := r.do("POST", insert, `{"Image": "http://127.0.0.1:1/x"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for _, c := range []struct {
		name         string
		path, body   string
		header       []string
		status       int
		stillHasMade bool
	}{
		{"a form", eject, "", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, true},
		{"a form of text", eject, "", []string{"Content-Type", "text/plain"}, 415, true},
		{"a form with files", eject, "", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, true},
		{"a script's request without a body", eject, "", []string{"Origin", "http://evil.example"}, 403, true},
		{"one of a page of no origin", eject, "", []string{"Origin", "null"}, 403, true},
		{"one that the browser marks", eject, "", []string{"Sec-Fetch-Site", "cross-site"}, 403, true},
		{"JSON with an origin", resetURL, resetBody("ForceOff"), []string{"Content-Type", "application/json", "Origin", "http://evil.example"}, 403, true},
		{"a client without a body", eject, "", nil, 204, false},
	} {
		if got := r.as("", "POST", c.path, c.body, c.header...); got != c.status {
			t.Errorf("%s: %d, want %d", c.name, got, c.status)
		}
		if inserted := r.do("GET", mediaURL, "").json(t)["Inserted"]; inserted != c.stillHasMade || r.state() != fakebmc.On {
			t.Errorf("after %s: image %v, host %s", c.name, inserted, r.state())
		}
	}
}

// TestGuesses: wrong passwords come with a wait, also before the right one, but not for a
// client that has a session or a connection that knew it.
func TestGuesses(t *testing.T) {
	r := newRig(t, account, "node-1")
	login := func(password string) reply {
		return r.do("POST", loginURL, fmt.Sprintf(`{"UserName": "admin", "Password": %q}`, password), "Authorization", "")
	}
	token := login("s3cret").header.Get("X-Auth-Token")
	kept := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: patience}
	defer kept.CloseIdleConnections()
	read := func() int {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+systemURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("admin", "s3cret")
		resp, err := kept.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if got := read(); got != 200 {
		t.Fatal(got)
	}
	refused := 0
	for range 100 {
		switch got := login("guess"); {
		case got.status == 503 && got.message() == "ServiceTemporarilyUnavailable" && got.header.Get("Retry-After") != "":
			refused++
		case got.status != 401:
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if refused < 90 {
		t.Errorf("%d of 100 guesses in no time were not looked at", refused)
	}
	if got := login("s3cret"); got.status != 503 {
		t.Errorf("the right password among guesses: %d", got.status)
	}
	if got := r.do("GET", systemURL, ""); got.status != 503 {
		t.Errorf("the right password by Basic among guesses: %d", got.status)
	}
	if got := r.do("GET", systemURL, "", "Authorization", "", "X-Auth-Token", token); got.status != 200 {
		t.Errorf("a session among guesses: %d", got.status)
	}
	if got := read(); got != 200 {
		t.Errorf("a connection that knew the password, among guesses: %d", got)
	}
	r.clk.Advance(10 * s)
	if got := login("s3cret"); got.status != 201 {
		t.Errorf("the right password after the wait: %d", got.status)
	}
}

// TestSessionTimeout: it can be set, by whoever serves and by a client.
func TestSessionTimeout(t *testing.T) {
	r := newRig(t, account, "node-1")
	const service = "/redfish/v1/SessionService"
	first := r.do("GET", service, "")
	if first.json(t)["SessionTimeout"] != 1800. || first.header.Get("Allow") != "GET, HEAD, PATCH" {
		t.Errorf("%v %s", first.header, first.body)
	}
	token := r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`).header.Get("X-Auth-Token")
	for _, c := range []struct {
		body, match string
		status      int
		message     string
	}{
		{`{"SessionTimeout": 29}`, "", 400, "PropertyValueOutOfRange"},
		{`{"SessionTimeout": 86401}`, "", 400, "PropertyValueOutOfRange"},
		{`{"SessionTimeout": 9223372036854775807}`, "", 400, "PropertyValueOutOfRange"},
		{`{"SessionTimeout": "60"}`, "", 400, "PropertyValueTypeError"},
		{`{"SessionTimeout": null}`, "", 400, "PropertyValueTypeError"},
		{`{"ServiceEnabled": false}`, "", 400, "PropertyUnknown"},
		{`{"SessionTimeout": 60}`, `"x"`, 412, "PreconditionFailed"},
		{`{"SessionTimeout": 60}`, first.header.Get("ETag"), 204, ""},
	} {
		got := r.do("PATCH", service, c.body, "If-Match", c.match)
		if got.status != c.status || got.message() != c.message {
			t.Errorf("%s: %d %s, want %d %s", c.body, got.status, got.message(), c.status, c.message)
		}
	}
	if got := r.do("GET", service, "").json(t)["SessionTimeout"]; got != 60. {
		t.Errorf("it is %v", got)
	}
	r.clk.Advance(60 * s)
	if got := r.do("GET", systemURL, "", "Authorization", "", "X-Auth-Token", token); got.status != 401 {
		t.Errorf("a session that was not used for that long: %d", got.status)
	}
}

// TestUnfinishedBodies: a service that was left waiting for a body answers, and the rules
// and the records see the request. That the connection ends is package front's.
func TestUnfinishedBodies(t *testing.T) {
	r := newRig(t, account, "node-1")
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", loginURL)
	conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") || !strings.Contains(string(answer), "Connection: close") {
		t.Errorf("%v %q", err, answer)
	}
	if rec := next(t, "record", r.seen); rec.Request.Path != loginURL || rec.Answer.Status != 400 {
		t.Errorf("%+v", rec)
	}
}
