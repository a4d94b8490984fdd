package reboot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// logOutTimeout bounds the end of a session, even when the call's own time is up: a BMC has few
// sessions, and one that is left open counts until it expires.
const logOutTimeout = 2 * time.Second

// errUnauthorized is the answer 401: nothing was done.
var errUnauthorized = errors.New("the BMC takes neither these credentials nor this way to send them")

// sessionsOnly holds the BMCs, by URL of the ComputerSystem, that accept no Basic authentication
// but do accept a session, as iDRAC10 does from 1.30.10.50 on. They are remembered, since some
// BMCs lock out clients that fail too often.
type sessionsOnly struct {
	mu   sync.Mutex
	urls map[string]bool
}

func (s *sessionsOnly) has(u *url.URL) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[u.String()]
}

func (s *sessionsOnly) set(u *url.URL, only bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.urls == nil {
		s.urls = make(map[string]bool)
	}
	s.urls[u.String()] = only
}

// session is an open session (DSP0266, session management).
type session struct {
	token string
	path  string // to end it
}

// logIn opens a session. All its errors are about logging in: if a BMC has no sessions, that says
// nothing about its resets.
func (b *bmc) logIn(ctx context.Context) error {
	opened, err := b.open(ctx)
	if err != nil {
		return fmt.Errorf("log in to the BMC: %v", err)
	}
	b.session = opened
	return nil
}

func (b *bmc) open(ctx context.Context) (*session, error) {
	root := &url.URL{Scheme: b.url.Scheme, Host: b.url.Host, Path: "/redfish/v1/"}
	data, _, err := b.send(ctx, http.MethodGet, root, nil, nil)
	if err != nil {
		return nil, err
	}
	var service struct {
		Links struct {
			Sessions struct {
				ID string `json:"@odata.id"`
			}
		}
	}
	if err := json.Unmarshal(data, &service); err != nil || service.Links.Sessions.ID == "" {
		return nil, fmt.Errorf("GET %s: it doesn't say where its sessions are", root)
	}
	sessions, err := b.own(service.Links.Sessions.ID)
	if err != nil {
		return nil, err
	}
	data, header, err := b.send(ctx, http.MethodPost, sessions, map[string]string{"UserName": b.username, "Password": b.password}, nil)
	if err != nil {
		return nil, err
	}
	opened := &session{token: header.Get("X-Auth-Token"), path: header.Get("Location")}
	if opened.token == "" {
		return nil, fmt.Errorf("POST %s: the answer has no token", sessions)
	}
	if opened.path == "" { // Cisco's has it in the body only
		var resource struct {
			ID string `json:"@odata.id"`
		}
		_ = json.Unmarshal(data, &resource) // without it the session ends by itself
		opened.path = resource.ID
	}
	return opened, nil
}

// logOut ends the session, if there is one. A failure costs a place until the
// session expires.
func (b *bmc) logOut(ctx context.Context) {
	if b.session == nil || b.session.path == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logOutTimeout)
	defer cancel()
	if target, err := b.own(b.session.path); err == nil {
		_, _, _ = b.send(ctx, http.MethodDelete, target, nil, b.authenticate)
	}
}

// own returns the URL of a path that the BMC named; it must be the BMC's own.
func (b *bmc) own(path string) (*url.URL, error) {
	reference, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	target := b.url.ResolveReference(reference)
	if target.Host != b.url.Host || target.Scheme != b.url.Scheme {
		return nil, fmt.Errorf("it points to another server, %s", target)
	}
	return target, nil
}

// authenticate adds the credentials to a request.
func (b *bmc) authenticate(request *http.Request) {
	switch {
	case b.session != nil:
		request.Header.Set("X-Auth-Token", b.session.token)
	case b.username != "":
		request.SetBasicAuth(b.username, b.password)
	}
}

// do sends one request with the account, by Basic authentication or, where that isn't accepted, in
// a session, and returns the body of a successful answer. It sends a request again only after a
// 401, which means that nothing was done: the session may have ended meanwhile.
func (b *bmc) do(ctx context.Context, method string, target *url.URL, body any) ([]byte, error) {
	if b.session == nil && b.sessionsOnly.has(b.url) {
		if err := b.logIn(ctx); err != nil {
			b.sessionsOnly.set(b.url, false) // the BMC may have other firmware by now
			return nil, err
		}
	}
	data, _, err := b.send(ctx, method, target, body, b.authenticate)
	if b.username == "" || !errors.Is(err, errUnauthorized) {
		return data, err
	}
	if err := b.logIn(ctx); err != nil {
		return nil, err
	}
	if data, _, err = b.send(ctx, method, target, body, b.authenticate); err == nil {
		b.sessionsOnly.set(b.url, true)
	}
	return data, err
}

func encode(body any) (*bytes.Reader, error) {
	if body == nil {
		return bytes.NewReader(nil), nil
	}
	content, err := json.Marshal(body)
	return bytes.NewReader(content), err
}
