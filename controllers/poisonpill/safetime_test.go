package poisonpill

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func seconds(s float64) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(s * float64(time.Second))}
}

// TestSilence has an agent that hears nothing wait for its looks, and one that could hear again for
// its next look and a round of questions.
func TestSilence(t *testing.T) {
	s := Settings{Interval: seconds(10), RequestTimeout: seconds(3), Failures: 4, PeerTimeout: seconds(5)}
	if got, want := s.Silence(), 30*time.Second; got != want {
		t.Errorf("it hears nothing for %s at least, not %s", got, want)
	}
	if got, want := s.Hearing(3), 28*time.Second; got != want { // three sets of one peer
		t.Errorf("it hears again within %s, not %s", got, want)
	}
}

// TestSafeTime names every term of the formula.
func TestSafeTime(t *testing.T) {
	s := Settings{
		Interval: seconds(10), RequestTimeout: seconds(3), Failures: 4, PeerTimeout: seconds(5),
		RebootTime: seconds(40), LongestPause: seconds(7), ClockError: 0.1,
	}
	for _, c := range []struct {
		what     string
		peers    int
		watchdog time.Duration
		change   func(*Settings)
		want     float64 // without the clock's error
	}{
		// four looks, two rounds of two sets of one peer, the pause, the watchdog
		{"three hosts", 2, 20 * time.Second, nil, 4*13 + 2*2*5 + 7 + 20},
		{"the pause is the watchdog's time unless it is given", 2, 20 * time.Second, func(s *Settings) { s.LongestPause = seconds(0) }, 4*13 + 2*2*5 + 20 + 20},
		{"no watchdog", 2, 0, nil, 4*13 + 2*2*5 + 7 + 40},
		{"nobody to ask", 0, 20 * time.Second, nil, 4*13 + 7 + 20},
		{"sixteen hosts are asked by two", 15, 20 * time.Second, nil, 4*13 + 2*8*5 + 7 + 20},
	} {
		s := s
		if c.change != nil {
			c.change(&s)
		}
		sum := c.want * (1.1 / 0.9)
		if got := s.Safe(c.peers, c.watchdog); (got - seconds(sum).Duration).Abs() > time.Millisecond {
			t.Errorf("%s: %s, want %.3f s", c.what, got, sum)
		}
	}
	s.SafeTime = seconds(1)
	if got := s.Safe(2, 20*time.Second); got < 99*time.Second {
		t.Errorf("a configured time undercuts the computed one: %s", got)
	}
	s.SafeTime = seconds(1000)
	if got := s.Safe(2, 20*time.Second); got != 1000*time.Second {
		t.Errorf("a configured time of 1000 s comes to %s", got)
	}
}

// TestSetSize is decision 7: at least one peer, and never more than there are.
func TestSetSize(t *testing.T) {
	for peers, want := range map[int]int{0: 1, 1: 1, 2: 1, 9: 1, 10: 2, 19: 2, 20: 3, 99: 10, 100: 11} {
		if got := setSize(peers); got != want {
			t.Errorf("of %d peers %d are asked at once, want %d", peers, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	good := DefaultSettings()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if err := good.Fits(30 * time.Second); err != nil {
		t.Error(err)
	}
	if err := good.Fits(0); err != nil {
		t.Error(err)
	}
	if err := good.Fits(5 * time.Second); err == nil || !strings.Contains(err.Error(), "peerTimeout") {
		t.Errorf("a watchdog that waits for 5 s: %v", err)
	}
	for what, change := range map[string]func(*Settings){
		"interval":       func(s *Settings) { s.Interval = seconds(0) },
		"failures":       func(s *Settings) { s.Failures = 0 },
		"requestTimeout": func(s *Settings) { s.RequestTimeout = seconds(16); s.PeerTimeout = seconds(60) },
		"peerTimeout":    func(s *Settings) { s.PeerTimeout = s.RequestTimeout },
		"rebootTime":     func(s *Settings) { s.RebootTime = seconds(0) },
		"clockError":     func(s *Settings) { s.ClockError = 1 },
		"longestPause":   func(s *Settings) { s.LongestPause = seconds(-1) },
		"x failures":     func(s *Settings) { s.Failures = 1 << 62 },
		"peerTimeout x":  func(s *Settings) { s.PeerTimeout.Duration = 1<<63 - 1 },
	} {
		bad := DefaultSettings()
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("bad %s: %v", what, err)
		}
	}
}

// TestQuorum: at least half of the peers know, so that the others are no majority.
func TestQuorum(t *testing.T) {
	for peers := range 8 {
		var a Announcement
		for i := range peers {
			a.Peers = append(a.Peers, string(rune('a'+i)))
		}
		for known := range peers + 1 {
			quorate := a.quorate(func(node string) bool { return node[0] < byte('a'+known) })
			r := &round{Order: a.Peers, Replies: map[string]Reply{}}
			for _, peer := range a.Peers {
				r.Replies[peer] = Unhealthy
				if peer[0] >= byte('a'+known) {
					r.Replies[peer] = CutOff
				}
			}
			if most := r.state([]Announcement{a}).Most; peers > 0 && quorate == most {
				t.Errorf("%d of %d peers know: quorate %t, and the others are the most: %t", known, peers, quorate, most)
			}
			if peers == 0 && quorate {
				t.Error("a host without peers can be released")
			}
		}
	}
}

// TestMajorityOfEveryList: while an announcement may or may not stand, both lists count.
func TestMajorityOfEveryList(t *testing.T) {
	old, new := Announcement{Peers: []string{"a", "b"}}, Announcement{Peers: []string{"a", "b", "c", "d"}}
	r := &round{Order: new.Peers, Replies: map[string]Reply{"a": CutOff, "b": CutOff, "c": Silent, "d": Silent}}
	if !r.state([]Announcement{old}).Most || r.state([]Announcement{new}).Most || r.state([]Announcement{old, new}).Most {
		t.Error("two peers of two, and two of four")
	}
	m := memory{Promises: []Announcement{{Terms: Terms{Reads: seconds(10)}}, {Terms: Terms{Reads: seconds(5)}}}}
	if m.patience() != 5*time.Second {
		t.Errorf("an agent that may have announced 5 s lives on %s", m.patience())
	}
}

// TestRounds: sets follow each other until all were asked, and the order differs from
// round to round.
func TestRounds(t *testing.T) {
	var peers []string
	for i := range 12 {
		peers = append(peers, string(rune('a'+i)))
	}
	first, second := begin(0, "self", 1, peers), begin(0, "self", 2, peers)
	if strings.Join(first.Order, "") == strings.Join(second.Order, "") || strings.Join(first.Order, "") == strings.Join(begin(0, "other", 1, peers).Order, "") {
		t.Error("the order is always the same")
	}
	asked := 0
	for len(first.next()) > 0 {
		for _, peer := range first.next() {
			first.Replies[peer] = Silent
		}
		asked++
	}
	if asked != 6 || len(first.Replies) != 12 {
		t.Errorf("%d sets with %d peers", asked, len(first.Replies))
	}
}

// TestAnnouncements: what is not understood is nothing, and what an agent knows is no
// part of what it promises.
func TestAnnouncements(t *testing.T) {
	a := Announcement{Boot: "b", Peers: []string{"x"}, Terms: Terms{Reset: seconds(3)}}
	b := a
	b.Knows = []types.UID{"u"}
	if !a.promises(b) || a.String() == b.String() {
		t.Error("what an agent knows is part of its promise")
	}
	for _, said := range []string{"", "null", "{", `[1]`, `{"reply":"maybe"}`, `"healthy"`} {
		if got := parseReply([]byte(said)); got != Silent {
			t.Errorf("%s: %s", said, got)
		}
	}
}

// TestAnnouncementsOfStrangers: what no agent announces is nothing. It would have the others
// wait for no time, or for a time below nothing.
func TestAnnouncementsOfStrangers(t *testing.T) {
	settings := DefaultSettings()
	for peers := range 12 {
		var names []string
		for i := range peers {
			names = append(names, string(rune('a'+i)))
		}
		a := Announcement{Boot: "b", Peers: names, Terms: settings.terms(peers, 30*time.Second), Knows: []types.UID{"u"}}
		if got := announced(announcing(a.String())); got.String() != a.String() {
			t.Errorf("%s is read as %s", a, got)
		}
	}
	const good = `{"boot":"b","peers":["x","y"],"reads":"60s","rounds":"28s","pause":"30s","reset":"30s","knows":["u"]}`
	if announced(announcing(good)).Boot != "b" {
		t.Fatal("the announcement that is spoilt below is not understood")
	}
	for what, change := range map[string][2]string{
		"no JSON":                  {`"`, "'"},
		"no terms":                 {`"reads":"60s","rounds":"28s","pause":"30s","reset":"30s",`, ""},
		"no reset":                 {`,"reset":"30s"`, ""},
		"no rounds":                {`,"rounds":"28s"`, ""},
		"a term below nothing":     {`"60s"`, `"-60s"`},
		"terms that overflow":      {`"60s","rounds":"28s"`, `"2562047h","rounds":"2562047h"`},
		"a term beyond a time":     {`"60s"`, `"99999999h"`},
		"a peer that counts twice": {`"x","y"`, `"x","x"`},
		"numbers for names":        {`"x","y"`, `1,2`},
	} {
		said := strings.ReplaceAll(good, change[0], change[1])
		if said == good {
			t.Fatal(what)
		}
		if a := announced(announcing(said)); a.Boot != "" || len(a.Knows) > 0 || a.quorate(func(string) bool { return true }) {
			t.Errorf("%s: %s is read as %s", what, said, a)
		}
	}
}

func announcing(said string) *corev1.Node {
	node := new(corev1.Node)
	node.Annotations = map[string]string{AgentAnnotation: said}
	return node
}
