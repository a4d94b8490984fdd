package fakebmc

import (
	"net/http"
	"strings"
)

// wire is what a request over HTTP carries beyond its meaning.
type wire struct {
	// run executes a request that is the service's own business, or refuses one
	// that must not be executed; nil leaves it to the BMC.
	run      func(verdict) Answer
	refused  bool   // run refuses it, whatever the rules
	login    bool   // it opens a session
	scheme   string // how the client authenticated: authBasic, authSession or not at all
	expire   func() // ends the client's session
	header   http.Header
	settings func() string // the tag of what the request would change; nil has none
}

// refuses holds an authenticated request against the rules about sessions and
// against its precondition.
func (w *wire) refuses(method string, v *verdict) (Answer, bool) {
	if w.refused {
		return Answer{}, false // by run
	}
	if e := v.first(func(e *Effect) bool { return e.Expire }); e != nil && w.scheme == authSession {
		w.expire()
		return e.answer(refusal(http.StatusUnauthorized, msgNoValidSession, nil)), true
	}
	if e := v.first(func(e *Effect) bool { return e.Auth != "" }); e != nil {
		switch {
		case e.Auth == authBasic && w.login:
			return e.answer(refusal(http.StatusMethodNotAllowed, msgNotAllowed, nil)), true
		case w.scheme != "" && w.scheme != e.Auth:
			return e.answer(refusal(http.StatusUnauthorized, msgNoValidSession, nil)), true
		}
	}
	if w.login || method == http.MethodGet || method == http.MethodHead {
		return Answer{}, false
	}
	match := w.header.Get("If-Match")
	if e := v.first(func(e *Effect) bool { return e.Etag != "" }); e != nil {
		switch {
		case e.Etag == etagRequired && match == "":
			return e.answer(refusal(http.StatusPreconditionRequired, msgPreconditionRequired, nil)), true
		case e.Etag == etagReject && match != "" && method == http.MethodPost:
			return e.answer(refusal(http.StatusPreconditionFailed, msgPreconditionFailed, nil)), true
		}
	}
	if match != "" && match != "*" && w.settings != nil && !matchesSettings(match, w.settings()) {
		return refusal(http.StatusPreconditionFailed, msgPreconditionFailed, nil), true
	}
	return Answer{}, false
}

// matchesSettings compares the tags of an If-Match with what can be set of a
// resource: its power state may change between a read and a change without harm.
func matchesSettings(header, settings string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		tag = strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
		if part, _, _ := strings.Cut(tag, "."); part == settings {
			return true
		}
	}
	return false
}
