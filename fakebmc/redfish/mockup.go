package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
)

// Mockup is the tree of another Redfish service, in the form that DMTF's mockup tools read and
// write: a directory for each resource, with an index.json in it. A BMC that has one looks like
// that service: its paths, names, OEM properties and registries. Of its first system the power,
// resets, boot override, watchdog and virtual CD drive are the host's; sessions, tasks, events, and
// the reset of the manager are alive as well. All else is what the mockup says, and can't be
// changed.
type Mockup struct {
	resources map[string]object
	headers   map[string]http.Header // of the answers to GET, by path
	metadata  []byte                 // nil is that of fencelab's own tree

	system, manager, chassis  string // the paths of the host's resources; manager and chassis may be empty
	resetTarget, managerReset string // of the actions; managerReset may be empty
	chassisReset              string // which may be empty
	sessionService, sessions  string
	taskService, tasks        string // which may be empty
	eventing, subscriptions   string // which may be empty
	drive, insert, eject      string // of a CD drive; drive and eject may be empty
	resets                    []fakebmc.ResetType
	actionInfo                string // the path of what lists the resets, if that isn't the system
}

// Limits of a mockup: real ones have some hundreds of resources, of some kilobytes.
const (
	maxMockup   = 50000
	maxResource = 4 << 20
)

// LoadMockup reads the mockup in a directory, which is the root of the service or has redfish/v1
// below it.
func LoadMockup(dir string) (*Mockup, error) {
	m := &Mockup{resources: make(map[string]object), headers: make(map[string]http.Header)}
	if err := m.read(dir); err != nil {
		return nil, fmt.Errorf("load the mockup %s: %w", dir, err)
	}
	if err := m.find(); err != nil {
		return nil, fmt.Errorf("load the mockup %s: %w", dir, err)
	}
	return m, nil
}

func (m *Mockup) read(dir string) error {
	files, base := os.DirFS(dir), "/"
	if _, err := fs.Stat(files, "redfish/v1/index.json"); err != nil {
		if _, err := fs.Stat(files, "index.json"); err != nil {
			return errors.New("it has neither redfish/v1/index.json nor index.json: name the directory that DMTF's mockup creator, or fencelab bmc record, has written")
		}
		base = rootPath
	}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		at := path.Join(base, path.Dir(name))
		switch path.Base(name) {
		case "index.json", "headers.json", "index.xml":
		default:
			return nil // such as a README
		}
		if info, err := entry.Info(); err != nil || info.Size() > maxResource {
			return errors.Join(err, fmt.Errorf("%s has %d bytes, more than a resource can have (%d)", name, info.Size(), maxResource))
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := m.add(at, path.Base(name), data); err != nil {
			return fmt.Errorf("%s: %w", filepath.FromSlash(name), err)
		}
		if len(m.resources) > maxMockup {
			return fmt.Errorf("it has more than %d resources", maxMockup)
		}
		return nil
	})
}

// add takes in a file of the resource at a path.
func (m *Mockup) add(at, name string, data []byte) error {
	switch {
	case name == "index.xml" && at == metadataPath:
		m.metadata = data
	case name == "index.json":
		o, err := decode(data)
		if err != nil {
			return err
		}
		m.resources[at] = o
	case name == "headers.json":
		var given map[string]map[string]string
		if err := json.Unmarshal(data, &given); err != nil {
			return err
		}
		h := make(http.Header)
		for header, value := range given[http.MethodGet] {
			if !slices.Contains(ownHeaders, http.CanonicalHeaderKey(header)) {
				h.Set(header, value)
			}
		}
		m.headers[at] = h
	}
	return nil
}

// ownHeaders are those of this connection and this body, whatever the mockup's had.
var ownHeaders = []string{
	"Allow", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Keep-Alive", "Location", "Odata-Version",
	"Set-Cookie", "Transfer-Encoding", "X-Auth-Token",
}

// decode reads a resource, with its numbers as they are written.
func decode(data []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	return clone(o).(object), nil
}

// clone copies a value of JSON, with its objects as ours.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return clone(object(v))
	case object:
		o := make(object, len(v))
		for key, value := range v {
			o[key] = clone(value)
		}
		return o
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = clone(v[i])
		}
		return all
	}
	return v
}

// inside is what a resource has at nested keys; nil if there is nothing.
func inside(o object, keys ...string) any {
	var v any = o
	for _, key := range keys {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[key]
	}
	return v
}

// linked is the path of what a resource links to, or of the first of a list; empty if there is
// none.
func linked(o object, keys ...string) string {
	v := inside(o, keys...)
	if all, ok := v.([]any); ok && len(all) > 0 {
		v = all[0]
	}
	one, _ := v.(object)
	id, _ := one["@odata.id"].(string)
	return strings.TrimSuffix(id, "/")
}

// find looks for what is alive.
func (m *Mockup) find() error {
	root := m.resources[rootPath]
	systems := m.resources[linked(root, "Systems")]
	if systems == nil {
		return errors.New("the root of the service leads to no Systems")
	}
	members, _ := systems["Members"].([]any)
	for _, member := range members {
		one, _ := member.(object)
		at := linked(object{"": one}, "")
		if target, _ := inside(m.resources[at], "Actions", "#ComputerSystem.Reset", "target").(string); target != "" {
			m.system, m.resetTarget = at, strings.TrimSuffix(target, "/")
			break
		}
	}
	if m.system == "" {
		return fmt.Errorf("none of its %d systems has the action ComputerSystem.Reset", len(members))
	}
	system := m.resources[m.system]
	m.manager, m.chassis = linked(system, "Links", "ManagedBy"), linked(system, "Links", "Chassis")
	if m.manager == "" {
		m.manager = linked(m.resources[linked(root, "Managers")], "Members")
	}
	target, _ := inside(m.resources[m.manager], "Actions", "#Manager.Reset", "target").(string)
	m.managerReset = strings.TrimSuffix(target, "/")
	target, _ = inside(m.resources[m.chassis], "Actions", "#Chassis.Reset", "target").(string)
	m.chassisReset = strings.TrimSuffix(target, "/")
	m.sessionService, m.sessions = linked(root, "SessionService"), linked(root, "Links", "Sessions")
	if m.sessions == "" {
		m.sessions = linked(m.resources[m.sessionService], "Sessions")
	}
	if m.sessions == "" {
		return errors.New("its root has no Links.Sessions, without which nobody can log in (DSP0266)")
	}
	m.taskService = linked(root, "Tasks")
	m.tasks = linked(m.resources[m.taskService], "Tasks")
	m.eventing = linked(root, "EventService")
	m.subscriptions = linked(m.resources[m.eventing], "Subscriptions")
	m.findDrive(linked(m.resources[m.manager], "VirtualMedia"), linked(system, "VirtualMedia"))
	return m.findResets(system)
}

// findDrive looks in collections of virtual media for the first one that takes the image of a CD.
func (m *Mockup) findDrive(collections ...string) {
	for _, at := range collections {
		members, _ := m.resources[at]["Members"].([]any)
		for _, member := range members {
			at := linked(object{"": member}, "")
			media := m.resources[at]
			kinds, _ := media["MediaTypes"].([]any)
			insert, _ := inside(media, "Actions", "#VirtualMedia.InsertMedia", "target").(string)
			if insert == "" || !slices.Contains(kinds, any("CD")) && !slices.Contains(kinds, any("DVD")) {
				continue
			}
			eject, _ := inside(media, "Actions", "#VirtualMedia.EjectMedia", "target").(string)
			m.drive, m.insert, m.eject = at, strings.TrimSuffix(insert, "/"), strings.TrimSuffix(eject, "/")
			return
		}
	}
}

// allowableValues is where an action lists the resets that it has.
const allowableValues = "ResetType@Redfish.AllowableValues"

// findResets reads which resets the mockup's system has: from its action, or from what that refers
// to.
func (m *Mockup) findResets(system object) error {
	action, _ := inside(system, "Actions", "#ComputerSystem.Reset").(object)
	listed, ok := action[allowableValues].([]any)
	if at, _ := action["@Redfish.ActionInfo"].(string); !ok && at != "" {
		m.actionInfo = strings.TrimSuffix(at, "/")
		parameters, _ := m.resources[m.actionInfo]["Parameters"].([]any)
		for _, p := range parameters {
			if inside(p.(object), "Name") == "ResetType" {
				listed, ok = inside(p.(object), "AllowableValues").([]any)
			}
		}
	}
	if !ok {
		return nil // it doesn't say
	}
	for _, v := range listed {
		if name, _ := v.(string); name != "" {
			m.resets = append(m.resets, fakebmc.ResetType(name))
		}
	}
	if len(m.resets) == 0 {
		return fmt.Errorf("%s has no reset that it allows", m.system)
	}
	return nil
}

// Locate has a BMC know the paths of the host's resources.
func (m *Mockup) Locate() fakebmc.Option {
	return fakebmc.At(fakebmc.Paths{
		System: m.system, Reset: m.resetTarget, Chassis: m.chassis, ChassisReset: m.chassisReset, ManagerReset: m.managerReset, Sessions: m.sessions,
	})
}

// allowed are the resets that both the mockup's system lists and a BMC executes.
func (m *Mockup) allowed(b *fakebmc.BMC) []fakebmc.ResetType {
	if m.resets == nil {
		return b.Resets()
	}
	return among(m.resets, b.Resets())
}

// resolveMockup finds the endpoint of a path without trailing slash in the tree of the mockup.
func (s *service) resolveMockup(path string) endpoint {
	m, b := s.mockup, s.common
	e := endpoint{bmc: b}
	base := m.resources[path]
	switch path {
	case "":
		return e
	case m.system:
		systemEndpoint(b, "", &e)
		e.dress = func(o object) object { return m.dressSystem(b, base, o) }
	case m.resetTarget:
		systemEndpoint(b, fakebmc.ResetAction, &e)
		e.resets = m.allowed(b)
	case m.managerReset:
		e.manager = true
	case m.sessionService:
		e = s.resolve(sessionServicePath)
		e.dress = func(o object) object { return dressed(base, o, "SessionTimeout") }
	case m.sessions, m.sessions + "/Members":
		e = s.resolve(sessionsPath)
		e.dress = func(o object) object { return m.dressList(base, o) }
	case m.tasks:
		e = s.resolve(tasksPath)
		e.dress = func(o object) object { return m.dressList(base, o) }
	case m.chassis:
		if base != nil {
			e.power = func(_ *fakebmc.BMC, p fakebmc.PowerState) object { return showChassis(base, p) }
			e.header = m.headers[path]
		}
	case m.chassisReset:
		chassisEndpoint(b, fakebmc.ChassisResetAction, &e)
		if listed, ok := inside(m.resources[m.chassis], "Actions", "#Chassis.Reset", allowableValues).([]any); ok {
			e.resets = slices.DeleteFunc(e.resets, func(t fakebmc.ResetType) bool { return !slices.Contains(listed, any(string(t))) })
		}
	case m.drive, m.insert, m.eject:
		s.mockupDrive(path, base, &e)
	case m.subscriptions:
		e = s.resolve(subscriptionsPath)
		e.dress = func(o object) object { return m.dressList(base, o) }
	case metadataPath:
		e = s.resolve(path)
		if m.metadata != nil {
			e.get = func() response { return served(&content{xml: m.metadata}) }
		}
	case "/redfish", odataPath:
		e = s.resolve(path)
	case eventStreamPath:
		if m.eventing != "" {
			e = s.resolve(path)
		}
	default:
		s.resolveMockupMember(path, base, &e)
	}
	return e
}

// mockupDrive is the mockup's CD drive with the image of the host's; of a host without one it is as
// the mockup has it.
func (s *service) mockupDrive(path string, base object, e *endpoint) {
	m := s.mockup
	bay, ok := s.common.System().(fakebmc.MediaBay)
	if !ok {
		s.resolveMockupMember(path, base, e)
		return
	}
	own := mediaPath(s.common) + "/" + mediaID
	rest := map[string]string{m.drive: "", m.insert: insertAction, m.eject: ejectAction}[path]
	drive{s.common, bay}.resolve(own, own+rest, s.allowed, e)
	if path == m.drive {
		e.dress = func(o object) object { return dressed(base, o, "Image", "ImageName", "Inserted", "ConnectedVia") }
	}
}

// resolveMockupMember finds a session or a task, or what the mockup says of a path.
func (s *service) resolveMockupMember(path string, base object, e *endpoint) {
	m, b := s.mockup, s.common
	for outer, inner := range map[string]string{m.sessions: sessionsPath, m.tasks: tasksPath, monitorsPath: monitorsPath, m.subscriptions: subscriptionsPath} { // one at most
		if rest, ok := strings.CutPrefix(path, outer+"/"); ok && outer != "" {
			*e = s.resolve(inner + "/" + rest)
			e.dress = m.rename
		}
	}
	if len(e.allow()) > 0 || base == nil {
		return
	}
	e.public = path == rootPath
	e.get = func() response {
		o := clone(base).(object)
		switch path {
		case m.eventing:
			if o["ServerSentEventUri"] != nil {
				o["ServerSentEventUri"] = eventStreamPath
			}
		case m.actionInfo:
			m.dressInfo(b, o)
		}
		return served(&content{body: o, header: m.headers[path].Clone()})
	}
}

// dressed is a resource of the mockup with some properties of the one that is alive.
func dressed(base, alive object, keys ...string) object {
	if base == nil {
		return alive
	}
	o := clone(base).(object)
	for _, key := range keys {
		if value, ok := alive[key]; ok {
			o[key] = value
		}
	}
	return o
}

// dressSystem is the mockup's system in the state of the host. What the mockup's has not, the
// host's has not.
func (m *Mockup) dressSystem(b *fakebmc.BMC, base, alive object) object {
	o := dressed(base, alive, "PowerState")
	if b.UUID() != "" && o["UUID"] != nil {
		o["UUID"] = b.UUID()
	}
	if o["PowerRestorePolicy"] != nil {
		o["PowerRestorePolicy"] = alive["PowerRestorePolicy"]
	}
	for _, key := range []string{"Boot", "HostWatchdogTimer"} {
		into, ok := o[key].(object)
		if !ok {
			continue
		}
		for property, value := range alive[key].(object) {
			into[property] = value
		}
	}
	if m.resets != nil && m.actionInfo == "" {
		o["Actions"].(object)["#ComputerSystem.Reset"].(object)["ResetType@Redfish.AllowableValues"] = m.allowed(b)
	}
	return o
}

// showChassis is the mockup's chassis, which is on while its system is.
func showChassis(base object, p fakebmc.PowerState) object {
	o := clone(base).(object)
	if o["PowerState"] != nil {
		o["PowerState"] = reported(p)
	}
	return o
}

// dressInfo lists of the resets that the mockup's action has those that the host executes.
func (m *Mockup) dressInfo(b *fakebmc.BMC, o object) {
	parameters, _ := o["Parameters"].([]any)
	for _, p := range parameters {
		if p, ok := p.(object); ok && p["Name"] == "ResetType" {
			p["AllowableValues"] = m.allowed(b)
		}
	}
}

// dressList is a collection of the mockup with the members that there are.
func (m *Mockup) dressList(base, alive object) object {
	return dressed(base, m.rename(alive), "Members", "Members@odata.count")
}

// rename has the paths of what is alive where the mockup has such things.
func (m *Mockup) rename(o object) object { return m.renamed(o).(object) }

func (m *Mockup) renamed(v any) any {
	switch v := v.(type) {
	case object:
		o := make(object, len(v))
		for key, value := range v {
			o[key] = m.renamed(value)
		}
		return o
	case []object:
		all := make([]object, len(v))
		for i := range v {
			all[i] = m.rename(v[i])
		}
		return all
	case string:
		for _, place := range []struct{ inner, outer string }{{sessionsPath, m.sessions}, {tasksPath, m.tasks}, {subscriptionsPath, m.subscriptions}} {
			if rest, ok := strings.CutPrefix(v, place.inner); ok && place.outer != "" && (rest == "" || rest[0] == '/') {
				return place.outer + rest
			}
		}
	}
	return v
}
