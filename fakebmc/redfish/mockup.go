package redfish

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
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
//
// Paths are as [place] makes them of links and directories. Those of what a mockup may lack are
// empty then.
type Mockup struct {
	resources map[string]object
	files     map[string]string      // where each resource was read
	headers   map[string]http.Header // of the answers to GET, by path
	metadata  []byte                 // nil is that of fencelab's own tree
	actions   map[string]string      // the name of each action, by its target

	systems, system           string
	settings                  string // the settings object of the system
	manager, chassis          string
	resetTarget, managerReset string
	chassisReset              string
	sessionService, sessions  string
	tasks                     string
	eventing, subscriptions   string
	drive, insert, eject      string // of a CD drive; one without actions is changed by PATCH
	resets                    []fakebmc.ResetType
	actionInfo                string   // what lists the resets, if that isn't the system
	targets                   []string // of a boot override; nil if it lists none
}

// place returns the path of a resource from a link to it, or from its directory. The path is
// decoded like that of a request, and has neither fragment nor trailing slash.
func place(link string) string {
	link, _, _ = strings.Cut(link, "#")
	link = strings.TrimSuffix(link, "/")
	if decoded, err := url.PathUnescape(link); err == nil {
		return decoded
	}
	return link // a stray per cent
}

// escaped is a path as a link has it.
func escaped(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// Limits of a mockup: real ones have some hundreds of resources, of some kilobytes.
const (
	maxMockup   = 50000
	maxResource = 4 << 20
)

// LoadMockup reads the mockup in a directory, which is the root of the service or has redfish/v1
// below it.
func LoadMockup(dir string) (*Mockup, error) {
	m, err := readMockup(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("load the mockup %s: %w", dir, err)
	}
	return m, nil
}

func readMockup(files fs.FS) (*Mockup, error) {
	m := &Mockup{
		resources: make(map[string]object), files: make(map[string]string), headers: make(map[string]http.Header), actions: make(map[string]string),
	}
	if err := m.read(files); err != nil {
		return nil, err
	}
	return m, m.find()
}

func (m *Mockup) read(files fs.FS) error {
	base := "/"
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
		if err := m.add(base, name, data); err != nil {
			return fmt.Errorf("%s: %w", filepath.FromSlash(name), err)
		}
		if len(m.resources) > maxMockup {
			return fmt.Errorf("it has more than %d resources", maxMockup)
		}
		return nil
	})
}

// add takes in a file, which says something of the resource that its directory stands for.
func (m *Mockup) add(base, name string, data []byte) error {
	// A directory can have a hash sign in its name, where a link's begins a fragment.
	at := place(strings.ReplaceAll(path.Join(base, path.Dir(name)), "#", "%23"))
	switch kind := path.Base(name); {
	case kind == "index.xml" && at == metadataPath:
		m.metadata = data
	case kind == "index.json":
		o, err := decode(data)
		if err != nil {
			return err
		}
		m.resources[at], m.files[at] = o, filepath.FromSlash(name)
		m.findActions(o)
	case kind == "headers.json":
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
	if o == nil {
		return nil, errors.New("it is null, and no resource")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something comes after the resource")
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
	return place(id)
}

// target is the path of an action of a resource, or empty.
func target(o object, action string) string {
	text, _ := inside(o, "Actions", action, "target").(string)
	return place(text)
}

// findActions notes the actions in a value, those of vendors as well.
func (m *Mockup) findActions(v any) {
	switch v := v.(type) {
	case object:
		for key, inner := range v { // order does not matter: a target has one name
			if text, ok := inside(v, key, "target").(string); ok && strings.HasPrefix(key, "#") {
				m.actions[place(text)] = key[1:]
			}
			m.findActions(inner)
		}
	case []any:
		for _, inner := range v {
			m.findActions(inner)
		}
	}
}

// wrong says what is wrong with a resource of the mockup, by its file.
func (m *Mockup) wrong(at, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{m.files[at]}, args...)...)
}

// find looks for what is alive.
func (m *Mockup) find() error {
	root := m.resources[rootPath]
	m.systems = linked(root, "Systems")
	if m.resources[m.systems] == nil {
		return errors.New("the root of the service leads to no Systems")
	}
	if err := m.findSystem(); err != nil {
		return err
	}
	system := m.resources[m.system]
	m.settings = linked(system, "@Redfish.Settings", "SettingsObject")
	m.manager, m.chassis = linked(system, "Links", "ManagedBy"), linked(system, "Links", "Chassis")
	if m.manager == "" {
		m.manager = linked(m.resources[linked(root, "Managers")], "Members")
	}
	m.managerReset = target(m.resources[m.manager], "#Manager.Reset")
	m.chassisReset = target(m.resources[m.chassis], "#Chassis.Reset")
	m.sessionService, m.sessions = linked(root, "SessionService"), linked(root, "Links", "Sessions")
	if m.sessions == "" {
		m.sessions = linked(m.resources[m.sessionService], "Sessions")
	}
	if m.sessions == "" {
		return errors.New("its root has no Links.Sessions, without which nobody can log in (DSP0266)")
	}
	m.tasks = cmp.Or(linked(m.resources[linked(root, "Tasks")], "Tasks"), tasksPath)
	m.eventing = linked(root, "EventService")
	m.subscriptions = linked(m.resources[m.eventing], "Subscriptions")
	m.findDrive(linked(m.resources[m.manager], "VirtualMedia"), linked(system, "VirtualMedia"))
	return m.findResets(system)
}

// findSystem finds the first system that can be reset. It fails at a system before that one which
// it can't read, because that might have been the first.
func (m *Mockup) findSystem() error {
	members, ok := m.resources[m.systems]["Members"].([]any)
	if !ok {
		return m.wrong(m.systems, "Members is no list of systems")
	}
	for i, member := range members {
		at := linked(object{"": member}, "")
		o := m.resources[at]
		switch {
		case at == "":
			return m.wrong(m.systems, "member %d leads to no system", i+1)
		case o == nil:
			return m.wrong(m.systems, "it leads to %s, and there is no index.json of that: add it, or take the system out of the list", at)
		}
		for _, key := range []string{"Actions", "Boot", "HostWatchdogTimer"} {
			if _, ok := o[key].(object); !ok && o[key] != nil {
				return m.wrong(at, "%s is no object", key)
			}
		}
		action := inside(o, "Actions", "#ComputerSystem.Reset")
		if action == nil {
			continue
		}
		if m.system, m.resetTarget = at, target(o, "#ComputerSystem.Reset"); m.resetTarget == "" {
			return m.wrong(at, "the action ComputerSystem.Reset has no target")
		}
		if listed, ok := inside(o, "Boot", targetValues).([]any); ok {
			m.targets = texts(listed)
		}
		return nil
	}
	return fmt.Errorf("none of its %d systems has the action ComputerSystem.Reset", len(members))
}

// texts are the texts of a list.
func texts(list []any) []string {
	some := []string{}
	for _, v := range list {
		if text, ok := v.(string); ok && text != "" {
			some = append(some, text)
		}
	}
	return some
}

// findDrive looks in collections of virtual media for the first drive that takes the image of a CD:
// by an action, or else by PATCH.
func (m *Mockup) findDrive(collections ...string) {
	for _, at := range collections {
		members, _ := m.resources[at]["Members"].([]any)
		for _, member := range members {
			at := linked(object{"": member}, "")
			media := m.resources[at]
			kinds, _ := media["MediaTypes"].([]any)
			if !slices.Contains(kinds, any("CD")) && !slices.Contains(kinds, any("DVD")) {
				continue
			}
			insert := target(media, "#VirtualMedia.InsertMedia")
			if _, shows := media["Image"]; insert == "" && (!shows || m.drive != "") {
				continue
			}
			m.drive, m.insert, m.eject = at, insert, target(media, "#VirtualMedia.EjectMedia")
			if insert != "" {
				return
			}
		}
	}
}

// Where an action lists the resets that it has, and a system the targets of its boot override.
const (
	allowableValues = "ResetType@Redfish.AllowableValues"
	targetValues    = "BootSourceOverrideTarget@Redfish.AllowableValues"
)

// findResets reads which resets the mockup's system has: from its action, or from what that refers
// to.
func (m *Mockup) findResets(system object) error {
	listed, ok := inside(system, "Actions", "#ComputerSystem.Reset", allowableValues).([]any)
	if link, _ := inside(system, "Actions", "#ComputerSystem.Reset", "@Redfish.ActionInfo").(string); !ok && link != "" {
		m.actionInfo = place(link)
		info := m.resources[m.actionInfo]
		if info == nil {
			return nil // it doesn't say
		}
		parameters, is := info["Parameters"].([]any)
		if !is {
			return m.wrong(m.actionInfo, "Parameters is no list")
		}
		for i, p := range parameters {
			p, is := p.(object)
			if !is {
				return m.wrong(m.actionInfo, "parameter %d is no object", i+1)
			}
			if p["Name"] == "ResetType" {
				listed, ok = p["AllowableValues"].([]any)
			}
		}
	}
	if !ok {
		return nil // it doesn't say
	}
	for _, name := range texts(listed) {
		m.resets = append(m.resets, fakebmc.ResetType(name))
	}
	if len(m.resets) == 0 {
		return m.wrong(m.system, "it has no reset that it allows")
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

// bootable are the targets and modes of a host that has one: of the targets that the mockup's
// system lists those that the host can boot from.
func (m *Mockup) bootable(s fakebmc.Booter) (targets, modes []string, err error) {
	targets, modes, err = s.Bootable()
	if err != nil || m.targets == nil {
		return targets, modes, err
	}
	if _, any := s.(fakebmc.AnyBooter); any {
		return m.targets, modes, nil
	}
	return among(m.targets, targets), modes, nil
}

// resolveMockup finds the endpoint of a path without trailing slash in the tree of the mockup.
func (s *service) resolveMockup(path string) endpoint {
	m, b := s.mockup, s.common
	e := endpoint{bmc: b}
	base := m.resources[path]
	patch := plain(func(body []byte) response { return patchSystem(b, body, m.bootable) })
	switch path {
	case "":
		return e
	case m.systems:
		e.get = func() response {
			o := clone(base).(object)
			if b.Unlisted() {
				m.unlist(o)
			}
			return served(&content{body: o, header: m.headers[path].Clone()})
		}
	case m.system:
		systemEndpoint(b, "", &e)
		e.header = m.headers[path]
		e.patch = patch
		e.dress = func(o object) object { return m.dressSystem(b, base, o) }
	case m.settings:
		systemEndpoint(b, fakebmc.ResetAction, &e) // whose tag is that of the settings
		e.reset, e.patch = "", patch
		e.get = func() response {
			return served(&content{body: m.dressSettings(b, base), header: m.headers[path].Clone()})
		}
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
		s.subscriptionsEndpoint(&e) // though events may be pushed nowhere
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
	if base != nil && e.get == nil && e.power == nil { // an action's target is a resource as well
		s.showMockup(path, base, &e)
	}
	if e.outside = m.outside; e.dress == nil && (e.reset != "" || e.manager || e.media) {
		e.dress = m.rename // of a task
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
	rest := map[string]string{m.insert: insertAction, m.eject: ejectAction, m.drive: ""}[path]
	d := drive{s.common, bay}
	d.resolve(own, own+rest, s.allowed, e)
	if path != m.drive {
		return
	}
	e.dress = func(o object) object { return dressed(base, o, "Image", "ImageName", "Inserted", "ConnectedVia") }
	if m.insert == "" {
		e.media = true
		e.patch = func(effects fakebmc.Effects, body []byte) response { return d.change(effects, body, s.allowed) }
	}
}

// resolveMockupMember finds a session or a task, or what the mockup says of a path.
func (s *service) resolveMockupMember(path string, base object, e *endpoint) {
	m := s.mockup
	for outer, inner := range map[string]string{m.sessions: sessionsPath, m.tasks: tasksPath, monitorsPath: monitorsPath, m.subscriptions: subscriptionsPath} { // one at most
		if rest, ok := strings.CutPrefix(path, outer+"/"); ok && outer != "" {
			*e = s.resolve(inner + "/" + rest)
			e.dress = m.rename
		}
	}
	if len(e.allow()) > 0 {
		return
	}
	if action, ok := m.actions[path]; ok {
		e.post = func(fakebmc.Effects, []byte) response {
			return refusal(http.StatusBadRequest, msgActionNotSupported, nil, action)
		}
	}
	if base != nil {
		s.showMockup(path, base, e)
	}
}

// showMockup has a path answer GET with what the mockup says of it.
func (s *service) showMockup(path string, base object, e *endpoint) {
	m, b := s.mockup, s.common
	e.public = path == rootPath
	e.get = func() response {
		o := clone(base).(object)
		switch path {
		case m.eventing:
			for property, ours := range eventService(true) {
				if _, has := o[property]; has && slices.Contains([]string{"ServerSentEventUri", "DeliveryRetryAttempts", "DeliveryRetryIntervalSeconds"}, property) {
					o[property] = ours
				}
			}
		case m.actionInfo:
			m.dressInfo(b, o)
		}
		return served(&content{body: o, header: m.headers[path].Clone()})
	}
}

// unlist takes the host's system out of the list of systems.
func (m *Mockup) unlist(o object) {
	members, _ := o["Members"].([]any)
	members = slices.DeleteFunc(members, func(v any) bool { return linked(object{"": v}, "") == m.system })
	o["Members"], o["Members@odata.count"] = members, len(members)
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
	if boot, ok := o["Boot"].(object); ok {
		m.dressBoot(b, boot, alive["Boot"].(object))
	}
	if timer, ok := o["HostWatchdogTimer"].(object); ok {
		maps.Copy(timer, alive["HostWatchdogTimer"].(object))
	}
	if m.resets != nil && m.actionInfo == "" {
		inside(o, "Actions", "#ComputerSystem.Reset").(object)[allowableValues] = m.allowed(b)
	}
	return o
}

// dressSettings is the settings object of the mockup's system, with the boot override that is set.
// Where the mockup leads to one that it hasn't, there is nothing else in it.
func (m *Mockup) dressSettings(b *fakebmc.BMC, base object) object {
	o := resource(escaped(m.settings), systemType, "Settings", "Settings of the system")
	if base != nil {
		o = clone(base).(object)
	}
	boot, ok := o["Boot"].(object)
	if !ok {
		boot = object{}
		o["Boot"] = boot
	}
	m.dressBoot(b, boot, settings(b)["Boot"].(object))
	return o
}

// dressBoot fills in the boot override. What can be set of it is listed where the mockup lists
// that.
func (m *Mockup) dressBoot(b *fakebmc.BMC, boot, alive object) {
	for property, value := range alive {
		_, has := boot[property]
		if property == targetValues {
			if s, ok := b.System().(fakebmc.Booter); ok {
				value, _, _ = m.bootable(s)
			}
		}
		if has || !strings.Contains(property, "@") && value != nil {
			boot[property] = value
		}
	}
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
		return m.outside(v)
	}
	return v
}

// outside is where the mockup has what is at a path of fencelab's own tree.
func (m *Mockup) outside(v string) string {
	for _, place := range []struct{ inner, outer string }{{sessionsPath, m.sessions}, {tasksPath, m.tasks}, {subscriptionsPath, m.subscriptions}} {
		if rest, ok := strings.CutPrefix(v, place.inner); ok && place.outer != "" && (rest == "" || rest[0] == '/') {
			return escaped(place.outer) + rest
		}
	}
	return v
}
