package redfish

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/front"
)

// write sends an answer with the headers that the Redfish protocol asks for.
func (x *exchange) write(a reply, c *content) {
	w := x.w
	// A client that doesn't read must not hold the handler; the error shows in Write.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(front.Timeout))
	h := w.Header()
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	if allow := x.e.allow(); len(allow) > 0 {
		h.Set("Allow", strings.Join(allow, ", "))
	}
	if a.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(a.RetryAfter)))
	}
	if a.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="fakebmc"`)
	}
	body := object(nil)
	switch {
	case a.Refusal != nil && a.Refusal.Body != "":
		send(w, a, "application/json; charset=utf-8", []byte(a.Refusal.Body))
		return
	case a.Status >= 400:
		body = errorBody(a.Answer)
	case c == nil:
		overrule(h, a)
		w.WriteHeader(a.Status)
		return
	case c.xml != nil:
		send(w, a, "application/xml; charset=utf-8", c.xml)
		return
	default:
		body = c.body
		for k, v := range c.header {
			h[k] = v
		}
		if l := describedBy(body); l != "" {
			h.Set("Link", l)
		}
	}
	if a.Status == http.StatusOK {
		bend(body, a.effects)
	}
	data := []byte(nil)
	if a.Status == http.StatusOK && body["@odata.type"] != nil {
		data = marshal(body)
		tag := etag(data, c.settings)
		h.Set("ETag", tag)
		if match := x.r.Header.Get("If-None-Match"); match == tag || match == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body["@odata.etag"], data = tag, tagged(data, tag)
	}
	if a.Status == http.StatusOK && impose(body, a.effects) { // also on the tag
		data = nil
	}
	if data == nil {
		data = marshal(body)
	}
	send(w, a, "application/json; charset=utf-8", data)
}

// tagged puts the tag into a resource as it is written, or returns nil where its place is not the
// first: names come in order.
func tagged(data []byte, tag string) []byte {
	const first = `{"@odata.id"`
	if !bytes.HasPrefix(data, []byte(first)) {
		return nil
	}
	written, err := json.Marshal(tag)
	if err != nil {
		panic(err) // a string
	}
	return slices.Concat([]byte(`{"@odata.etag":`), written, []byte(","), data[1:])
}

func send(w http.ResponseWriter, a reply, contentType string, data []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	overrule(h, a)
	w.WriteHeader(a.Status)
	_, _ = w.Write(data) // a client that left is not our trouble
}

// overrule makes of an answer's own headers what rules say: those that they set, and less those
// that they drop.
func overrule(h http.Header, a reply) {
	if a.Refusal != nil {
		for name, value := range a.Refusal.Headers { // order does not matter: into a map
			h.Set(name, value)
		}
	}
	for _, e := range a.effects {
		if e.Drop != "" {
			h.Del(e.Drop)
		}
	}
}

// bend changes a body as rules have it.
func bend(body object, effects fakebmc.Effects) {
	for _, e := range effects {
		if len(e.Advertise) > 0 {
			if actions, ok := body["Actions"].(object); ok {
				if action, ok := actions["#ComputerSystem.Reset"].(object); ok {
					action["ResetType@Redfish.AllowableValues"] = e.Advertise
				}
			}
		}
		if e.Omit != "" {
			omit(body, strings.Split(e.Omit, "/"))
		}
	}
}

// impose gives properties the values that rules have for them, and reports whether any has.
func impose(body object, effects fakebmc.Effects) (imposed bool) {
	for _, e := range effects {
		for _, path := range slices.Sorted(maps.Keys(e.Set)) { // what holds others comes before them
			set(body, strings.Split(path, "/"), e.Set[path])
			imposed = true
		}
	}
	return imposed
}

func set(o object, path []string, value json.RawMessage) {
	if len(path) == 1 {
		o[path[0]] = value
		return
	}
	inner, ok := o[path[0]].(object)
	if !ok {
		inner = object{}
		o[path[0]] = inner
	}
	set(inner, path[1:], value)
}

func omit(o object, path []string) {
	if len(path) == 1 {
		delete(o, path[0])
		return
	}
	switch inner := o[path[0]].(type) {
	case object:
		omit(inner, path[1:])
	case reference:
		o[path[0]] = link(inner.ID)
		omit(o, path)
	}
}

// etag is weak: it names the content, not its bytes. Its first part names only
// what can be changed: see matchesSettings.
func etag(data []byte, settings string) string {
	if settings == "" {
		settings = "0"
	}
	return fmt.Sprintf(`W/"%s.%s"`, settings, digest(data))
}

func hash(o object) string { return digest(marshal(o)) }

func digest(data []byte) string {
	h := sha256.Sum256(data)
	return fmt.Sprintf("%x", h[:8])
}

func marshal(o object) []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // objects hold strings, numbers, lists and objects only
	}
	return append(data, '\n')
}

// abortRequest breaks the client's connection as a dead BMC does.
func abortRequest(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http then closes it
	}
	front.Abort(conn)
}
