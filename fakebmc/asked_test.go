package fakebmc_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// still is a System in a state in which it stays, whatever it is told.
type still struct{ state fakebmc.PowerState }

func (s *still) PowerState() (fakebmc.PowerState, error) { return s.state, nil }
func (s *still) Reset(fakebmc.ResetType) error           { return nil }
func (s *still) SetGuest(fakebmc.Guest) error            { return nil }

// visit is a request as one of the protocols makes it.
type visit struct {
	fakebmc.Request
	traits fakebmc.Traits
}

// tour is what clients of both protocols ask of the BMC of node-1, and of the service that it
// has to itself or shares.
func tour(shared bool) []visit {
	const system, manager = fakebmc.SystemsPath + "/node-1", fakebmc.ManagersPath + "/node-1"
	var all []visit
	add := func(t fakebmc.Traits, via, method, path string, reset fakebmc.ResetType) {
		all = append(all, visit{fakebmc.Request{Client: "somebody", Via: via, Method: method, Path: path, ResetType: reset}, t})
	}
	says := func(string) (string, bool) { return "here", true }
	session := fakebmc.Traits{Header: func(string) string { return "here" }, Body: says, Auth: fakebmc.AuthSession}
	for _, r := range []fakebmc.ResetType{"On", "ForceOff", "GracefulShutdown", "ForceOn"} {
		add(session, "", "POST", system+fakebmc.ResetAction, r)
	}
	add(session, "", "POST", manager+fakebmc.ManagerResetAction, "GracefulRestart")
	paths := []string{system, manager, manager + "/VirtualMedia/1", system + fakebmc.ResetAction, manager + fakebmc.ManagerResetAction, "/redfish/v1/TaskService/Tasks/node-1-1"}
	if !shared {
		paths = append(paths, fakebmc.SystemsPath, "/redfish/v1", fakebmc.SystemsPath+"/node-2", "/redfish/v1/SessionService/Sessions")
		add(fakebmc.Traits{Header: session.Header, Body: says, Login: true}, "", "POST", "/redfish/v1/SessionService/Sessions", "")
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PATCH", "DELETE"} { // what can't be done is asked for, too
		for _, path := range paths {
			session := session
			if method != "POST" && method != "PATCH" {
				session.Body = nil
			}
			add(session, "", method, path, "")
		}
	}
	for _, r := range fakebmc.ChassisControls {
		add(fakebmc.Traits{}, fakebmc.ViaIPMI, "POST", system+fakebmc.ResetAction, r)
	}
	add(fakebmc.Traits{}, fakebmc.ViaIPMI, "GET", system, "")
	add(fakebmc.Traits{}, fakebmc.ViaIPMI, "POST", manager+fakebmc.ManagerResetAction, "ForceRestart")
	add(fakebmc.Traits{Own: true}, fakebmc.ViaIPMI, "PATCH", system, "")
	add(fakebmc.Traits{Own: true}, fakebmc.ViaIPMI, "GET", manager, "")
	return all
}

// TestRulesFireOrAreRefused puts each effect together with each way to select requests, and has
// clients ask for everything: a rule that is accepted fires, and one that is refused would not
// have.
func TestRulesFireOrAreRefused(t *testing.T) {
	effects := map[string]fakebmc.Effect{
		"delay": {Delay: 1}, "hang": {Hang: true}, "ignore": {Ignore: true}, "stuck": {Stuck: &fakebmc.Stuck{}},
		"transition": {Transition: &fakebmc.Transition{For: 1}}, "substitute": {Substitute: "On"}, "duplicate": {Duplicate: 1},
		"auto": {Auto: &fakebmc.Auto{Reset: "On"}}, "swap": {Swap: "node-2"}, "also": {Also: "node-2"}, "lose": {Lose: []string{"Boot"}}, "lag": {Lag: 1}, "report": {Report: "Off"},
		"unreachable": {Unreachable: true}, "refuse": {Refuse: &fakebmc.Refusal{Status: 503}}, "restart": {Restart: &fakebmc.Restart{Downtime: 1}},
		"cap": {Cap: 1}, "expire": {Expire: true}, "auth": {Auth: "basic"}, "etag": {Etag: "required"}, "drop": {Drop: "ETag"},
		"omit": {Omit: "Links"}, "set": {Set: map[string]json.RawMessage{"Name": json.RawMessage(`1`)}}, "advertise": {Advertise: []fakebmc.ResetType{"On"}}, "task": {Task: &fakebmc.TaskFault{}},
		"late": {Hang: true, Stage: fakebmc.Executed},
	}
	accepted, refused := 0, 0
	for key, effect := range effects {
		for _, when := range selectors() {
			for _, shared := range []bool{false, true} {
				if key == "restart" && when.IsZero() {
					continue // it takes place by itself, without a request
				}
				rule := fakebmc.Rule{Name: "r", When: when, Effect: effect}
				if rule.Validate() != nil {
					refused++ // it can't be told of any BMC
					continue
				}
				err := add(newStill(shared), rule)
				fires, b := "", newStill(shared)
				for _, v := range tour(shared) {
					if b.Fires(rule, v.Request, v.traits) {
						fires = fmt.Sprintf("%s %s %s", v.Via, v.Method, v.Path)
						break
					}
				}
				name := fmt.Sprintf("%s when %+v (shared: %t)", key, when, shared)
				switch {
				case err == nil && fires == "":
					t.Errorf("%s is accepted, and never fires", name)
				case err != nil && fires != "":
					t.Errorf("%s is refused, and fires on %s: %v", name, fires, err)
				case err != nil:
					refused++
				default:
					accepted++
				}
			}
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("%d rules were accepted, and %d refused", accepted, refused)
	}
}

// selectors are ways to select requests: by where they come from, what they ask for and what the
// host is then.
func selectors() (all []fakebmc.Selector) {
	paths := []string{
		"", fakebmc.SystemsPath + "/node-1", fakebmc.SystemsPath + "/*/Actions/*", fakebmc.ManagersPath + "/*", fakebmc.ManagersPath + "/node-1" + fakebmc.ManagerResetAction,
		fakebmc.SystemsPath, "/redfish/v1/SessionService/Sessions", fakebmc.SystemsPath + "/node-2", "/redfish/v1/TaskService/Tasks/*",
	}
	for _, via := range []string{"", fakebmc.ViaRedfish, fakebmc.ViaIPMI} {
		for _, method := range []string{"", "GET", "POST", "PATCH"} {
			for _, path := range paths {
				for _, more := range []fakebmc.Selector{{}, {Phase: []fakebmc.PowerState{fakebmc.On}}, {Reset: []fakebmc.ResetType{"GracefulShutdown"}}, {Reset: []fakebmc.ResetType{"ForceOn"}}, {Header: "X-A: *"}, {Body: map[string]string{"Boot": "*"}}, {Count: 1}} {
					more.Via, more.Method, more.Path = via, method, path
					all = append(all, more)
				}
			}
		}
	}
	return all
}

func newStill(shared bool) *fakebmc.BMC {
	var more []fakebmc.Option
	if shared {
		more = append(more, fakebmc.SharesService())
	}
	host := &still{fakebmc.On}
	more = append(more, fakebmc.Peers(map[string]fakebmc.System{"node-1": host, "node-2": &still{fakebmc.On}}))
	return fakebmc.New("node-1", host, &systemtest.Clock{}, more...)
}

func add(b *fakebmc.BMC, r fakebmc.Rule) error {
	defer b.Close()
	return b.AddRule(r)
}
