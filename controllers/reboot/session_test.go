package reboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// loginService refuses Basic authentication.
type loginService struct {
	sessions string // where the root says that they are
	bodyOnly bool   // the session's path
	refusal  int    // of every login
	expires  int    // a session ends after this many requests; 0 means never
	received []string
	open     int
	used     int
}

func (s *loginService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, _, basic := r.BasicAuth(); basic {
		s.received = append(s.received, "basic")
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(r.Body)
	switch request := r.Method + " " + r.URL.Path; request {
	case "GET /redfish/v1/":
		fmt.Fprintf(w, `{"Links":{"Sessions":{"@odata.id":%q}}}`, s.sessions)
	case "POST /sessions":
		if s.refusal != 0 || string(body) != `{"Password":"secret","UserName":"admin"}` {
			w.WriteHeader(max(s.refusal, http.StatusUnauthorized))
			return
		}
		s.received = append(s.received, "login")
		s.open++
		s.used = 0
		w.Header().Set("X-Auth-Token", fmt.Sprint("token-", s.open))
		if !s.bodyOnly {
			w.Header().Set("Location", "/sessions/1")
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"@odata.id":"/sessions/1"}`)
	default:
		if s.used++; s.expires != 0 && s.used > s.expires || r.Header.Get("X-Auth-Token") != fmt.Sprint("token-", s.open) {
			s.received = append(s.received, "expired")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.received = append(s.received, r.Method)
		fmt.Fprint(w, `{"PowerState":"Off"}`)
	}
}

func TestSession(t *testing.T) {
	for name, c := range map[string]struct {
		service       loginService
		first, second string // what the BMC saw of a command, and of another one
	}{
		"Basic is refused": {loginService{sessions: "/sessions"}, "basic login GET POST DELETE", "login GET POST DELETE"},
		"without Location": {loginService{sessions: "/sessions", bodyOnly: true}, "basic login GET POST DELETE", "login GET POST DELETE"},
		"it expires before the reset": {loginService{sessions: "/sessions", expires: 1},
			"basic login GET expired login POST expired", "login GET expired login POST expired"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &c.service
			power, host := reach(t, httptest.NewServer(s), time.Minute)
			for _, want := range []string{c.first, c.second} {
				s.received = nil
				if err := power.Off(context.Background(), host); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(s.received, " "); got != want {
					t.Errorf("it received %q, want %q", got, want)
				}
			}
			if got, err := power.State(context.Background(), host); got != Off || err != nil {
				t.Errorf("state %s, %v", got, err)
			}
		})
	}
}

// TestSessionRefusals: nothing is sent in a way that is not allowed, and why a login
// fails is not taken for what a reset may be.
func TestSessionRefusals(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server received %s %s", r.Method, r.URL)
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		service loginService
		want    string
	}{
		"a wrong password":           {loginService{sessions: "/sessions", refusal: http.StatusUnauthorized}, "401"},
		"no sessions":                {loginService{sessions: "/sessions", refusal: http.StatusMethodNotAllowed}, "405"},
		"too many sessions":          {loginService{sessions: "/sessions", refusal: http.StatusServiceUnavailable}, "503"},
		"sessions nowhere":           {loginService{}, "where its sessions are"},
		"sessions on another server": {loginService{sessions: elsewhere.URL + "/sessions"}, "another server"},
	} {
		s := &c.service
		power, host := reach(t, httptest.NewServer(s), time.Minute)
		err := power.ShutDown(context.Background(), host)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "log in") || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if !slices.Equal(s.received, []string{"basic"}) {
			t.Errorf("%s: it received %v", name, s.received)
		}
	}
}
