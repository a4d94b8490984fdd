package history

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func sample() *History {
	h := new(History)
	h.Append(Event{Kind: RunStarted})
	h.Append(Event{At: time.Second, Kind: PowerOff, Host: "worker-1", Boot: "b1"})
	h.Append(Event{At: 2 * time.Second, Kind: NodeDeleted, Host: "worker-1", Object: "Node/worker-1", UID: "u1", Note: "a <b>"})
	h.Append(Event{At: 3 * time.Second, Kind: Done})
	return h
}

func TestRoundTrip(t *testing.T) {
	h := sample()
	var buf bytes.Buffer
	if _, err := h.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if i := Diff(h, got); i >= 0 {
		t.Fatalf("event %d differs", i)
	}
	if h.Digest() != got.Digest() {
		t.Fatal("digests differ")
	}
	if !got.Complete() {
		t.Fatal("the history ends with done, so it is complete")
	}
}

func TestDigestSeesEveryField(t *testing.T) {
	base := Event{At: 1, Kind: PowerOn, Host: "h", Boot: "b", Object: "o", UID: "u", Actor: "a", Key: "k", Value: "v", Note: "n"}
	digest := func(e Event) string {
		h := new(History)
		h.Append(e)
		return h.Digest()
	}
	for name, change := range map[string]func(*Event){
		"at": func(e *Event) { e.At++ }, "kind": func(e *Event) { e.Kind = PowerOff }, "host": func(e *Event) { e.Host = "x" },
		"boot": func(e *Event) { e.Boot = "x" }, "object": func(e *Event) { e.Object = "x" }, "uid": func(e *Event) { e.UID = "x" },
		"actor": func(e *Event) { e.Actor = "x" }, "key": func(e *Event) { e.Key = "x" }, "value": func(e *Event) { e.Value = "x" },
		"note":             func(e *Event) { e.Note = "x" },
		"a field boundary": func(e *Event) { e.Host, e.Boot = "hb", "" },
	} {
		changed := base
		change(&changed)
		if digest(changed) == digest(base) {
			t.Errorf("a change of %s leaves the digest as it was", name)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"seq":1,"at":0,"kind":"run-started","colour":"red"}`, "line 1: json: unknown field"},
		{`{"seq":1,"at":0,"kind":"explosion"}`, `line 1: unknown kind "explosion"`},
		{`{"seq":2,"at":0,"kind":"done"}`, "numbered 2"},
		{`{"seq":1,"at":5,"kind":"run-started"}` + "\n" + `{"seq":2,"at":4,"kind":"done"}`, "line 2: time runs backwards"},
		{`nonsense`, "line 1"},
	} {
		if _, err := Read(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Read(%s): error %v, want %q", tc.text, err, tc.want)
		}
	}
}

func TestAppendRefusesTimeRunningBackwards(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	h := sample()
	h.Append(Event{At: 0, Kind: PowerOn})
}

func TestEveryKindHasALayer(t *testing.T) {
	n := 0
	for _, layer := range []Layer{World, API, BMC, Controller, Engine} {
		n += len(Kinds(layer))
	}
	if n != len(phrases) {
		t.Fatalf("%d kinds in layers, %d in all", n, len(phrases))
	}
}

func TestString(t *testing.T) {
	e := Event{At: 41200 * time.Millisecond, Kind: PowerOn, Host: "worker-1", Boot: "b2", Note: "by policy"}
	if got, want := e.String(), "  41.200s  world      power-on           worker-1 boot=b2  # by policy"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := e.Phrase(), "worker-1 was powered on"; got != want {
		t.Errorf("Phrase() = %q, want %q", got, want)
	}
}
