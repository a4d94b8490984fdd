package fakebmc

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// write sends an answer with the headers that the Redfish protocol asks for.
func write(w http.ResponseWriter, r *http.Request, a Answer, allow []string) {
	// A client that doesn't read must not hold the handler; the error shows in Write.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ioTimeout))
	h := w.Header()
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	if len(allow) > 0 {
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
	case a.Status >= 400:
		body = errorBody(a)
	case a.content != nil:
		body = a.content.body
		for k, v := range a.content.header {
			h[k] = v
		}
		if l := describedBy(body); l != "" {
			h.Set("Link", l)
		}
	default:
		w.WriteHeader(a.Status)
		return
	}
	if a.Status == http.StatusOK && body["@odata.type"] != nil {
		tag := etag(body)
		h.Set("ETag", tag)
		if match := r.Header.Get("If-None-Match"); match == tag || match == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body["@odata.etag"] = tag
	}
	data := marshal(body)
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(data) // a client that left is not our trouble
}

// etag is weak: it names the content, not its bytes.
func etag(o object) string {
	h := sha256.Sum256(marshal(o))
	return fmt.Sprintf(`W/"%x"`, h[:8])
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
	abort(conn)
}

func abort(conn net.Conn) {
	type wrapped interface{ NetConn() net.Conn }
	if t, ok := conn.(wrapped); ok { // a *tls.Conn would say goodbye first
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = conn.Close()
}
