package history

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
)

// History is an ordered record of events. The zero value is empty and ready.
type History struct {
	events []Event
}

// usual is the number of events in most histories.
const usual = 128

// Append adds an event, numbers it, and returns it. Events come in the order of
// their times; a backend that hands them over out of order is broken, and that
// must not be hidden by sorting, so Append panics.
func (h *History) Append(e Event) Event {
	if n := len(h.events); n > 0 && e.At < h.events[n-1].At {
		panic(fmt.Sprintf("history: %q at %s comes after %q at %s", e.Kind, e.At, h.events[n-1].Kind, h.events[n-1].At))
	}
	e.Seq = len(h.events) + 1
	if h.events == nil {
		h.events = make([]Event, 0, usual)
	}
	h.events = append(h.events, e)
	return e
}

// Events returns the events. The caller must not change them.
func (h *History) Events() []Event { return h.events }

// Len returns the number of events.
func (h *History) Len() int { return len(h.events) }

// Complete reports whether the history ends with Done, so that silence at its end means that
// nothing happened rather than that the recording stopped.
func (h *History) Complete() bool {
	return len(h.events) > 0 && h.events[len(h.events)-1].Kind == Done
}

// Digest identifies the history: equal digests mean equal events. It is the
// first 16 hexadecimal digits of a SHA-256 over every field.
func (h *History) Digest() string {
	sum := sha256.New()
	var buf []byte
	for i := range h.events {
		e := &h.events[i]
		buf = strconv.AppendInt(buf[:0], int64(e.At), 10)
		for _, field := range [...]string{string(e.Kind), e.Host, e.Boot, e.Object, e.UID, e.Actor, e.Key, e.Value, e.Note} {
			buf = append(buf, 0)
			buf = append(buf, field...)
		}
		if e.From != "" || e.To != "" { // as digests were before events had ends of links
			buf = append(append(append(append(buf, 0), e.From...), 0), e.To...)
		}
		buf = append(buf, '\n')
		sum.Write(buf)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// WriteTo writes the history as JSON lines, one event a line.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for _, e := range h.events {
		if err := enc.Encode(e); err != nil {
			return 0, fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
	}
	return buf.WriteTo(w)
}

// Read reads a history as WriteTo writes it. It refuses unknown fields, unknown
// kinds, gaps in the numbers and times that run backwards, each with its line.
func Read(r io.Reader) (*History, error) {
	h := new(History)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		var e Event
		switch err := dec.Decode(&e); {
		case err != nil:
			return nil, fmt.Errorf("history line %d: %w", n, err)
		case e.Kind.Layer() == "":
			return nil, fmt.Errorf("history line %d: unknown kind %q", n, e.Kind)
		case e.Seq != n:
			return nil, fmt.Errorf("history line %d: event is numbered %d", n, e.Seq)
		case n > 1 && e.At < h.events[n-2].At:
			return nil, fmt.Errorf("history line %d: time runs backwards from %s to %s", n, h.events[n-2].At, e.At)
		}
		h.events = append(h.events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return h, nil
}

// Diff returns the index of the first event in which two histories differ, or
// -1 when they are equal.
func Diff(a, b *History) int {
	for i := range min(len(a.events), len(b.events)) {
		if !Same(&a.events[i], &b.events[i]) {
			return i
		}
	}
	if len(a.events) != len(b.events) {
		return min(len(a.events), len(b.events))
	}
	return -1
}

// Same reports whether two events are equal in every field.
func Same(a, b *Event) bool { return reflect.DeepEqual(a, b) }

func sortKinds(kinds []Kind) { slices.Sort(kinds) }
