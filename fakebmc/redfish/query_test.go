package redfish_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// TestQueries: a collection is cut, filtered and expanded as a query asks, with what rules make of
// each member; what isn't understood is refused.
func TestQueries(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1", "node-2", "node-3", "node-4")
	r.bmcs[1].AddRule(fakebmc.Rule{Name: "lie", Effect: fakebmc.Effect{Report: "Off"}})
	const systems = "/redfish/v1/Systems"
	for _, c := range []struct{ query, want string }{
		{"$top=2", "4: node-1 node-2 > /redfish/v1/Systems?%24skip=2&%24top=2"}, {"$skip=3", "4: node-4"}, {"$top=1&$skip=1", "4: node-2 > /redfish/v1/Systems?%24skip=2&%24top=1"},
		{"$top=0", "4: > /redfish/v1/Systems?%24skip=0&%24top=0"}, {"$skip=9", "4:"}, {"$top=4", "4: node-1 node-2 node-3 node-4"},
		{"$filter=PowerState eq 'Off'", "1: node-2"}, {"$filter=not (PowerState eq 'On') or Id eq 'node-4'", "2: node-2 node-4"},
		{"$filter=ProcessorSummary/Count ge 1 and PowerState ne 'Off'", "3: node-1 node-3 node-4"}, {"$filter=ProcessorSummary/Count gt 1", "0:"},
		{"$filter=Id gt 'node-2' and Id le 'node-3'", "1: node-3"}, {"$filter=Nothing eq null", "4: node-1 node-2 node-3 node-4"}, {"$filter=Id lt 3", "0:"},
		{"$filter=Id eq 'it''s'", "0:"}, {"$filter=PowerState eq 'Off'&$expand=.", "1: node-2=Off"}, {"$expand=*&$top=1&$skip=1", "4: node-2=Off > /redfish/v1/Systems?%24expand=%2A&%24skip=2&%24top=1"},
		{"$expand=.($levels=2)&$top=1", "4: node-1=On > /redfish/v1/Systems?%24expand=.%28%24levels%3D2%29&%24skip=1&%24top=1"}, {"$expand=~", "4: node-1 node-2 node-3 node-4"},
		{"$top=x", "400 QueryParameterValueFormatError"}, {"$top=-1", "400 QueryParameterValueFormatError"}, {"$filter=PowerState", "400 QueryParameterValueFormatError"},
		{"$filter=PowerState eq Off", "400 QueryParameterValueFormatError"}, {"$filter=(Id eq 'a'", "400 QueryParameterValueFormatError"}, {"$filter=Id is 'a'", "400 QueryParameterValueFormatError"},
		{"$filter=Id eq 'a' Id", "400 QueryParameterValueFormatError"}, {"$filter=Id eq 'a", "400 QueryParameterValueFormatError"}, {"$filter=" + strings.Repeat("(", 99), "400 QueryParameterValueFormatError"},
		{"$expand=all", "400 QueryParameterValueFormatError"}, {"$expand=*($levels=9)", "400 QueryParameterOutOfRange"}, {"$expand=*($levels=0)", "400 QueryParameterOutOfRange"},
		{"$select=Id", "501 QueryNotSupported"}, {"$count=true", "501 QueryNotSupported"}, {"page=7", "4: node-1 node-2 node-3 node-4"},
	} {
		name, value, _ := strings.Cut(c.query, "=")
		parts := []string{name + "=" + url.QueryEscape(value)}
		if strings.Contains(value, "&$") {
			parts = nil
			for part := range strings.SplitSeq(c.query, "&") {
				name, value, _ := strings.Cut(part, "=")
				parts = append(parts, name+"="+url.QueryEscape(value))
			}
		}
		got := r.do("GET", systems+"?"+strings.Join(parts, "&"), "")
		shown := fmt.Sprint(got.status, " ", got.message())
		if got.status == http.StatusOK {
			list := got.json(t)
			shown = fmt.Sprint(list["Members@odata.count"], ":")
			for _, member := range list["Members"].([]any) {
				member := member.(map[string]any)
				shown += " " + strings.TrimPrefix(member["@odata.id"].(string), systems+"/")
				if power, ok := member["PowerState"]; ok {
					shown += fmt.Sprint("=", power)
				}
			}
			if next, ok := list["Members@odata.nextLink"]; ok {
				shown += fmt.Sprint(" > ", next)
			}
		}
		if shown != c.want {
			t.Errorf("%s: %s, want %s", c.query, shown, c.want)
		}
	}
	if got := r.do("GET", systemURL+"?$top=1", ""); got.message() != "QueryNotSupportedOnResource" {
		t.Errorf("of one resource the first is %d %s", got.status, got.body)
	}
	if got := r.do("PATCH", systemURL+"?$expand=*", "{}"); got.status != http.StatusBadRequest {
		t.Errorf("a change with a query answers %d", got.status)
	}
	system := r.do("GET", systemURL+"?$expand=~", "").json(t)
	if manager := inSystem(system, "Links", "ManagedBy").([]any)[0].(map[string]any); manager["ManagerType"] != "BMC" || system["Processors"].(map[string]any)["Members"] != nil {
		t.Errorf("a system with what it is linked with: %v", system)
	}
	seen := 0
	for len(r.seen) > 0 {
		if rec := <-r.seen; rec.Request.Path == systems+"/node-2" {
			seen++
		}
	}
	if seen == 0 {
		t.Error("the reads of an expansion are not in the log")
	}
}

// TestExpandedRefusals: a member that rules have refused stays a link.
func TestExpandedRefusals(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1", "node-2")
	r.bmcs[0].AddRule(fakebmc.Rule{Name: "no", Effect: fakebmc.Effect{Refuse: &fakebmc.Refusal{Status: 503}}})
	members := r.do("GET", "/redfish/v1/Systems?$expand=.", "").json(t)["Members"].([]any)
	if first, second := members[0].(map[string]any), members[1].(map[string]any); first["PowerState"] != nil || second["PowerState"] != "On" || second["@odata.etag"] == nil {
		t.Errorf("%v", members)
	}
	blades := mockupRig(t, "blades", redfish.Config{}).do("GET", v1+"/Systems?$filter=PowerState%20eq%20'Off'&$expand=.", "").json(t)
	if blades["Members@odata.count"] != 2. {
		t.Errorf("of a mockup's blades these are off: %v", blades)
	}
}

// TestLog: a system's log has its resets, the newest hundred, can be read in parts, and is cleared.
func TestLog(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	const at = systemURL + "/LogServices/Log"
	r.do("POST", resetURL, resetBody("ForceRestart"))
	r.do("POST", resetURL, resetBody("Suspend"))
	r.do("POST", resetURL, resetBody("Nmi"))
	entries := r.do("GET", at+"/Entries", "").json(t)
	if got := mustJSON(t, entries["Members"]); entries["Members@odata.count"] != 2. || !strings.Contains(got, "The host was reset: ForceRestart.") || !strings.Contains(got, "Nmi") {
		t.Errorf("it has %s", got)
	}
	if one := r.do("GET", at+"/Entries/2", "").json(t); one["EntryType"] != "Event" || one["Created"] == nil {
		t.Errorf("an entry is %v", one)
	}
	if some := r.do("GET", at+"/Entries?$filter=Id%20eq%20'2'", "").json(t); some["Members@odata.count"] != 1. {
		t.Errorf("one entry is filtered as %v", some)
	}
	for range 120 {
		r.do("POST", resetURL, resetBody("Nmi"))
	}
	if full := r.do("GET", at+"/Entries?$top=1", "").json(t); full["Members@odata.count"] != 100. || full["Members"].([]any)[0].(map[string]any)["Id"] != "23" {
		t.Errorf("a full log is %v", full)
	}
	if got := r.do("POST", at+"/Actions/LogService.ClearLog", "{}"); got.status != http.StatusNoContent {
		t.Errorf("to clear it answers %d %s", got.status, got.body)
	}
	if entries := r.do("GET", at+"/Entries", "").json(t); entries["Members@odata.count"] != 0. || r.do("GET", at+"/Entries/50", "").status != http.StatusNotFound {
		t.Errorf("then it has %v", entries)
	}
}
