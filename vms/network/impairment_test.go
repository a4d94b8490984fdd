package network

import (
	"bufio"
	"testing"
	"time"
)

// exchange returns how long a request takes whose answer has 20,000 bytes.
func (g *guest) exchange(t *testing.T, in *bufio.Reader, conn interface {
	Write([]byte) (int, error)
}) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := conn.Write([]byte("GET /1 HTTP/1.1\r\nHost: api\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer(t, in, "/1")
	return time.Since(began)
}

// TestImpairment: what is late, lost or slow arrives in the end, no sooner than it can.
func TestImpairment(t *testing.T) {
	for name, c := range map[string]struct {
		how   Impairment
		links []Link
		least time.Duration
	}{
		"late both ways":     {Impairment{Delay: 60 * time.Millisecond}, Both("host/a", "api"), 120 * time.Millisecond},
		"late one way":       {Impairment{Delay: 60 * time.Millisecond}, []Link{{"api", "host/a"}}, 60 * time.Millisecond},
		"late by two causes": {Impairment{Delay: 60 * time.Millisecond}, []Link{{"api", "host/a"}, {From: "api"}}, 120 * time.Millisecond},
		"lossy":              {Impairment{Loss: 0.2}, All("host/a"), 0},
		"lost for a while":   {Impairment{Loss: 1}, Both("host/a", "api"), 300 * time.Millisecond},
		"slow":               {Impairment{Rate: 40_000}, []Link{{"api", "host/a"}}, 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, "a", "b")
			api, _ := n.api()
			a := n.boot("a")
			conn, err := a.dial(api)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			in := bufio.NewReader(conn)
			a.exchange(t, in, conn)
			if changed := n.Impair(c.how, c.links...); len(changed) != len(c.links) {
				t.Errorf("changed %v", changed)
			}
			if changed := n.Impair(c.how, c.links...); len(changed) != 0 {
				t.Errorf("changed %v again", changed)
			}
			if c.how.Loss == 1 { // TCP sends it again
				time.AfterFunc(c.least, func() { n.Restore(c.links...) })
			}
			if took := a.exchange(t, in, conn); took < c.least {
				t.Errorf("it took %v, want at least %v", took, c.least)
			}
			if left := n.Faulty(); c.how.Loss < 1 && len(left) != len(c.links) {
				t.Errorf("faulty are %v", left)
			}
			if changed := n.Restore(n.Faulty()...); c.how.Loss < 1 && len(changed) != len(c.links) || len(n.Faulty()) > 0 {
				t.Errorf("restored %v, left %v", changed, n.Faulty())
			}
			a.exchange(t, in, conn)
		})
	}
}
