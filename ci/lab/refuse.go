package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// refusals are the failAPI operations in force: requests of controllers that are
// answered before they reach the API server.
type refusals struct {
	mu  sync.Mutex
	ops []*refusal
}

type refusal struct {
	scenarios.FailAPIOp
	left int // how often it will still be; less than 0 is for ever
}

func (r *refusals) add(op *scenarios.FailAPIOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := -1
	if op.Times > 0 {
		left = op.Times
	}
	r.ops = append(r.ops, &refusal{*op, left})
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = nil
}

// code returns the HTTP status that a request is refused with, or 0.
func (r *refusals) code(controller, verb, kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := func(want, got string) bool { return want == "" || want == got }
	for _, op := range r.ops {
		if op.left != 0 && is(op.Controller, controller) && is(op.Verb, verb) && is(op.Kind, kind) {
			op.left--
			return op.Code
		}
	}
	return 0
}

// refuse returns the answer to a request that a failAPI matches, or nil. Watches
// are let through: in the simulator they are no requests either.
func (p *process) refuse(request *http.Request) *http.Response {
	verb, kind, name := about(request)
	if verb == "" {
		return nil
	}
	code := p.b.refusals.code(p.name, verb, kind)
	if code == 0 {
		return nil
	}
	p.b.stream.now(history.Event{Kind: history.APIFault, Actor: p.name, Object: kind + "/" + name, Value: fmt.Sprint(code), Note: verb})
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code],
		Message: fmt.Sprintf("the scenario has the API server refuse to %s %s/%s", verb, kind, name),
	})
	if err != nil {
		body = nil // unreachable: a Status is plain data
	}
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	http.StatusConflict: metav1.StatusReasonConflict, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

// about says what a request asks of which object, as the simulator calls it. The
// verb is empty for a watch and for what is about no object that matters.
func about(request *http.Request) (verb, kind, name string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	for i, part := range parts {
		if kind = kinds[part]; kind == "" {
			continue
		}
		if i+1 < len(parts) {
			name = parts[i+1]
		}
		verb = verbs[request.Method]
		switch {
		case verb == "create":
			name = nameInBody(request)
		case request.Method == http.MethodGet && name != "":
			verb = "get"
		case request.Method == http.MethodGet && request.URL.Query().Get("watch") == "":
			verb = "list"
		}
		return verb, kind, name
	}
	return "", "", ""
}
