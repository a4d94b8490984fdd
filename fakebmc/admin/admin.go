// Package admin is an HTTP API to running BMCs: what their hosts really do, and the
// rules:
//
//	GET    /v1/presets                    every preset
//	GET    /v1/hosts                      the hosts and their rules in force
//	GET    /v1/hosts/{host}               the state: actual, reported and internal, and the log
//	POST   /v1/hosts/{host}/rules         add a rule; host is a glob
//	DELETE /v1/hosts/{host}/rules/{name}  remove it; host is a glob
//
// It asks for no password, so serve it on loopback only. A page in a browser can't
// use it: it answers to no other name than a loopback one, and takes JSON only.
package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/front"
)

// BMCs are those that the API is about. They may come and go.
type BMCs interface {
	All() []*fakebmc.BMC
}

// API returns the handler.
func API(bmcs BMCs, log *Log) http.Handler {
	a := admin{bmcs, log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/presets", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, fakebmc.Presets()) })
	mux.HandleFunc("GET /v1/hosts", a.list)
	mux.HandleFunc("GET /v1/hosts/{host}", a.show)
	mux.HandleFunc("POST /v1/hosts/{host}/rules", a.add)
	mux.HandleFunc("DELETE /v1/hosts/{host}/rules/{name...}", a.remove)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !front.IsLocal(r.Host) {
			respond(w, http.StatusForbidden, problem(fmt.Errorf("the admin API is not served as %q; use a loopback address", r.Host)))
			return
		}
		if front.CrossSite(r) {
			respond(w, http.StatusForbidden, problem(errors.New("the admin API takes nothing that a page of another site sends")))
			return
		}
		body, err := front.ReadBody(w, r)
		if err != nil {
			respond(w, http.StatusBadRequest, problem(fmt.Errorf("reading the request: %w", err)))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mux.ServeHTTP(w, r)
	})
}

type admin struct {
	BMCs
	log *Log
}

func (a admin) matching(pattern string) (matching []*fakebmc.BMC, err error) {
	for _, b := range a.All() {
		if ok, err := path.Match(pattern, b.Host()); ok && err == nil {
			matching = append(matching, b)
		}
	}
	if len(matching) == 0 {
		err = fmt.Errorf("no host matches %q", pattern)
	}
	return matching, err
}

func (a admin) list(w http.ResponseWriter, _ *http.Request) {
	type host struct {
		Host  string         `json:"host"`
		Rules []fakebmc.Rule `json:"rules"`
	}
	hosts := []host{}
	for _, b := range a.All() {
		hosts = append(hosts, host{b.Host(), append([]fakebmc.Rule{}, b.Rules()...)})
	}
	respond(w, http.StatusOK, hosts)
}

// show returns the state of a host, and what its clients were answered about it.
func (a admin) show(w http.ResponseWriter, r *http.Request) {
	for _, b := range a.All() {
		if b.Host() == r.PathValue("host") {
			respond(w, http.StatusOK, struct {
				Host string `json:"host"`
				fakebmc.State
				Log []fakebmc.Record `json:"log"`
			}{b.Host(), b.State(), a.log.of(b.Host())})
			return
		}
	}
	respond(w, http.StatusNotFound, problem(fmt.Errorf("there is no host %q", r.PathValue("host"))))
}

// add is all or nothing: where one host refuses the rule, no host has it.
func (a admin) add(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		respond(w, http.StatusBadRequest, problem(err))
		return
	case !front.IsJSON(r):
		respond(w, http.StatusUnsupportedMediaType, problem(fmt.Errorf("content type %q; use application/json", r.Header.Get("Content-Type"))))
		return
	}
	rules, err := fakebmc.ParseRules(append(append([]byte{'['}, body...), ']'))
	if err == nil && len(rules) != 1 {
		err = fmt.Errorf("there are %d; send one at a time", len(rules))
	}
	if err != nil {
		respond(w, http.StatusBadRequest, problem(fmt.Errorf("reading one rule: %w", err)))
		return
	}
	hosts, err := a.matching(r.PathValue("host"))
	if err != nil {
		respond(w, http.StatusNotFound, problem(err))
		return
	}
	names := make([]string, len(hosts))
	for i, b := range hosts {
		names[i] = b.Host()
	}
	if err := rules[0].Concerns(names...); err != nil {
		respond(w, http.StatusConflict, problem(err))
		return
	}
	for i, b := range hosts {
		if err := b.AddRule(rules[0]); err != nil {
			for _, done := range hosts[:i] {
				done.RemoveRule(rules[0].Name)
			}
			respond(w, http.StatusConflict, problem(err))
			return
		}
	}
	respond(w, http.StatusCreated, rules[0])
}

func (a admin) remove(w http.ResponseWriter, r *http.Request) {
	hosts, err := a.matching(r.PathValue("host"))
	if err != nil {
		respond(w, http.StatusNotFound, problem(err))
		return
	}
	removed := false
	for _, b := range hosts {
		removed = b.RemoveRule(r.PathValue("name")) || removed
	}
	if !removed {
		respond(w, http.StatusNotFound, problem(fmt.Errorf("no rule %q is in force there", r.PathValue("name"))))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func problem(err error) any { return map[string]string{"error": err.Error()} }

func respond(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, data = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that left is not our trouble
}
