package gate

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// Addresses maps the addresses of servers, host:port, to those that a controller is shown instead,
// so that its requests to servers that it learns of from the API lead through our proxies. The
// controller needs no configuration: whatever it reads has the shown addresses, and whatever it
// writes gets the real ones again. They change in JSON only, which is how custom resources travel.
// Ports must have five digits, so that no address begins with another.
type Addresses struct {
	shown, hidden []pair
}

type pair struct{ from, to string }

// NewAddresses maps real addresses to those to be shown.
func NewAddresses(show map[string]string) Addresses {
	var a Addresses
	for real, shown := range show {
		a.shown, a.hidden = append(a.shown, pair{real, shown}), append(a.hidden, pair{shown, real})
	}
	return a
}

// real undoes what was shown.
func (a Addresses) real(text []byte) []byte {
	if len(a.hidden) == 0 || text == nil {
		return text
	}
	replaced, rest := replace(a.hidden, text)
	return append(replaced, rest...)
}

// show changes a response.
func (a Addresses) show(response *http.Response) {
	if len(a.shown) == 0 {
		return
	}
	for _, location := range response.Header["Location"] {
		replaced, rest := replace(a.shown, []byte(location))
		response.Header.Set("Location", string(replaced)+string(rest))
	}
	if !isJSON(response.Header) || response.Body == nil {
		return
	}
	response.Body = &replacer{pairs: a.shown, source: response.Body}
	response.ContentLength = -1
	response.Header.Del("Content-Length")
}

// replace replaces every from, and returns apart the end of the text that could be the beginning of
// one.
func replace(pairs []pair, text []byte) (replaced, rest []byte) {
	replaced = make([]byte, 0, len(text))
	for {
		first, found := -1, pair{}
		for _, p := range pairs {
			if i := bytes.Index(text, []byte(p.from)); i >= 0 && (first < 0 || i < first) {
				first, found = i, p
			}
		}
		if first < 0 {
			break
		}
		replaced = append(append(replaced, text[:first]...), found.to...)
		text = text[first+len(found.from):]
	}
	held := 0
	for _, p := range pairs {
		for n := min(len(p.from)-1, len(text)); n > held; n-- {
			if strings.HasPrefix(p.from, string(text[len(text)-n:])) {
				held = n
			}
		}
	}
	return append(replaced, text[:len(text)-held]...), text[len(text)-held:]
}

// replacer replaces in a stream. It holds back only what could be the beginning of an address,
// which the end of a watch's event is not.
type replacer struct {
	pairs  []pair
	source io.ReadCloser
	ready  []byte
	rest   []byte
	err    error
	chunk  [16 << 10]byte
}

func (r *replacer) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.source.Read(r.chunk[:])
		r.ready, r.rest = replace(r.pairs, append(r.rest, r.chunk[:n]...))
		if r.err != nil {
			r.ready = append(r.ready, r.rest...)
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *replacer) Close() error { return r.source.Close() }
