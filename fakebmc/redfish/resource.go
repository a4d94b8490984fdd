package redfish

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// object is a Redfish resource as JSON; keys are written in order.
type object map[string]any

// The schema versions to which the resources keep. testdata/schema.json says what
// they allow.
const (
	rootType           = "#ServiceRoot.v1_14_0.ServiceRoot"
	systemType         = "#ComputerSystem.v1_20_0.ComputerSystem"
	managerType        = "#Manager.v1_15_0.Manager"
	chassisType        = "#Chassis.v1_20_0.Chassis"
	mediaType          = "#VirtualMedia.v1_5_1.VirtualMedia"
	sessionServiceType = "#SessionService.v1_1_8.SessionService"
	sessionType        = "#Session.v1_4_0.Session"
	taskServiceType    = "#TaskService.v1_2_0.TaskService"
	taskType           = "#Task.v1_7_0.Task"
	accountServiceType = "#AccountService.v1_11_0.AccountService"
	accountType        = "#ManagerAccount.v1_9_0.ManagerAccount"
	roleType           = "#Role.v1_3_1.Role"
	eventServiceType   = "#EventService.v1_8_0.EventService"
	registryFileType   = "#MessageRegistryFile.v1_1_3.MessageRegistryFile"
	destinationType    = "#EventDestination.v1_13_0.EventDestination"
	eventType          = "#Event.v1_7_0.Event"
	redfishVersion     = "1.15.0"

	rootPath           = "/redfish/v1"
	sessionServicePath = rootPath + "/SessionService"
	sessionsPath       = sessionServicePath + "/Sessions"
	taskServicePath    = rootPath + "/TaskService"
	tasksPath          = taskServicePath + "/Tasks"
	monitorsPath       = taskServicePath + "/TaskMonitors"
	accountServicePath = rootPath + "/AccountService"
	accountsPath       = accountServicePath + "/Accounts"
	rolesPath          = accountServicePath + "/Roles"
	eventServicePath   = rootPath + "/EventService"
	subscriptionsPath  = eventServicePath + "/Subscriptions"
	eventStreamPath    = eventServicePath + "/SSE"
	registriesPath     = rootPath + "/Registries"
	metadataPath       = rootPath + "/$metadata"
	odataPath          = rootPath + "/odata"
)

// types are all of them but those of collections.
var types = []string{
	rootType, systemType, managerType, chassisType, mediaType, sessionServiceType, sessionType, taskServiceType,
	taskType, accountServiceType, accountType, roleType, eventServiceType, registryFileType, eventType,
	processorType, memoryType, interfaceType, storageType, driveType, biosType, secureBootType,
	logServiceType, logEntryType,
}

const administrator = "Administrator"

func link(path string) object { return object{"@odata.id": path} }

func links(parent string, ids ...string) []object {
	all := make([]object, len(ids))
	for i, id := range ids {
		all[i] = link(parent + "/" + id)
	}
	return all
}

func resource(path, typ, id, name string) object {
	return object{"@odata.id": path, "@odata.type": typ, "Id": id, "Name": name}
}

func collection(path, typ, name string, ids ...string) object {
	return object{
		"@odata.id": path, "@odata.type": "#" + typ + "." + typ, "Name": name,
		"Members": links(path, ids...), "Members@odata.count": len(ids),
	}
}

// services are the resources that the root leads to, by property.
var services = []struct{ property, path string }{
	{"Systems", fakebmc.SystemsPath}, {"Managers", fakebmc.ManagersPath}, {"Chassis", fakebmc.ChassisPath},
	{"SessionService", sessionServicePath}, {"AccountService", accountServicePath},
	{"Tasks", taskServicePath}, {"EventService", eventServicePath}, {"Registries", registriesPath},
}

// root carries @odata.id with the trailing slash that clients ask for.
func root(uuid string) object {
	r := resource(rootPath+"/", rootType, "RootService", "Root Service")
	r["RedfishVersion"] = redfishVersion
	r["UUID"] = uuid
	for _, s := range services {
		r[s.property] = link(s.path)
	}
	r["Links"] = object{"Sessions": link(sessionsPath)}
	r["ProtocolFeaturesSupported"] = object{
		"FilterQuery": true, "SelectQuery": false, "ExcerptQuery": false, "OnlyMemberQuery": false,
		"ExpandQuery": object{"ExpandAll": true, "Links": true, "NoLinks": true, "Levels": true, "MaxLevels": maxLevels},
	}
	return r
}

func healthy() object { return object{"State": "Enabled", "Health": "OK"} }

// systemProperties is about how many properties a system has, so that its map needn't grow.
const systemProperties = 32

// system advertises only what is executed. Boot is there because clients can't
// do without it; nothing in it can be set unless the System is a Booter.
func system(b *fakebmc.BMC, p fakebmc.PowerState) object {
	r := make(object, systemProperties)
	maps.Copy(r, resource(b.SystemPath(), systemType, b.ID(), b.Host()))
	r["SystemType"] = "Physical"
	r["Manufacturer"] = "fencelab"
	r["Model"] = "fakebmc"
	r["SerialNumber"] = b.Host()
	r["UUID"] = b.UUID()
	if b.UUID() == "" {
		r["UUID"] = uuid(b.Host())
	}
	r["Status"] = healthy()
	r["PowerState"] = reported(p)
	for key, value := range settings(b) {
		r[key] = value
	}
	inventoried(b, r)
	r["LogServices"] = reference{b.SystemPath() + logsPath}
	r["PowerRestorePolicy@Redfish.AllowableValues"] = fakebmc.RestorePolicies()
	r["Links"] = object{
		"ManagedBy": links(fakebmc.ManagersPath, b.ID()),
		"Chassis":   links(fakebmc.ChassisPath, b.ID()),
	}
	r["Actions"] = object{"#ComputerSystem.Reset": object{
		"target":                            b.SystemPath() + fakebmc.ResetAction,
		"ResetType@Redfish.AllowableValues": b.Resets(),
	}}
	return r
}

func manager(b *fakebmc.BMC) object {
	path := fakebmc.ManagersPath + "/" + b.ID()
	r := resource(path, managerType, b.ID(), "Manager of "+b.Host())
	r["ManagerType"] = "BMC"
	r["UUID"] = uuid("manager of " + b.Host())
	r["PowerState"] = fakebmc.On
	r["Status"] = healthy()
	r["Links"] = object{
		"ManagerForServers": links(fakebmc.SystemsPath, b.ID()),
		"ManagerForChassis": links(fakebmc.ChassisPath, b.ID()),
	}
	r["Actions"] = object{"#Manager.Reset": object{
		"target":                            path + fakebmc.ManagerResetAction,
		"ResetType@Redfish.AllowableValues": managerResets,
	}}
	if _, ok := b.System().(fakebmc.MediaBay); ok {
		r["VirtualMedia"] = link(mediaPath(b))
	}
	return r
}

func chassis(b *fakebmc.BMC, p fakebmc.PowerState) object {
	r := resource(fakebmc.ChassisPath+"/"+b.ID(), chassisType, b.ID(), "Chassis of "+b.Host())
	r["ChassisType"] = "RackMount"
	r["PowerState"] = reported(p)
	r["Actions"] = object{"#Chassis.Reset": object{
		"target":                            fakebmc.ChassisPath + "/" + b.ID() + fakebmc.ChassisResetAction,
		"ResetType@Redfish.AllowableValues": chassisResets(b),
	}}
	r["Status"] = healthy()
	r["Links"] = object{
		"ComputerSystems": links(fakebmc.SystemsPath, b.ID()),
		"ManagedBy":       links(fakebmc.ManagersPath, b.ID()),
	}
	return r
}

// reported is a power state in an answer: null if the BMC has none.
func reported(p fakebmc.PowerState) any {
	if p == "" {
		return nil
	}
	return p
}

// chassisResets are those of the host's resets that its chassis has.
func chassisResets(b *fakebmc.BMC) []fakebmc.ResetType {
	return among(fakebmc.ChassisResets, b.Resets())
}

// among returns those of some that are among others.
func among[T comparable](some, others []T) []T {
	return slices.DeleteFunc(slices.Clone(some), func(t T) bool { return !slices.Contains(others, t) })
}

func sessionService(timeout time.Duration) object {
	r := resource(sessionServicePath, sessionServiceType, "SessionService", "Session Service")
	r["ServiceEnabled"] = true
	r["SessionTimeout"] = seconds(timeout)
	r["Status"] = healthy()
	r["Sessions"] = link(sessionsPath)
	return r
}

func sessionResource(id, user string) object {
	r := resource(sessionsPath+"/"+id, sessionType, id, "Session "+id)
	r["UserName"] = user
	r["Password"] = nil
	r["SessionType"] = "Redfish"
	return r
}

func taskService() object {
	r := resource(taskServicePath, taskServiceType, "TaskService", "Task Service")
	r["ServiceEnabled"] = true
	r["CompletedTaskOverWritePolicy"] = "Oldest"
	r["LifeCycleEventOnTaskStateChange"] = false
	r["Status"] = healthy()
	r["Tasks"] = link(tasksPath)
	return r
}

func task(t fakebmc.Task) object {
	r := resource(tasksPath+"/"+t.ID, taskType, t.ID, strings.TrimPrefix(string(t.Reset)+" of a "+cmp.Or(t.Of, "system"), " of a "))
	r["TaskMonitor"] = monitorsPath + "/" + t.ID
	r["TaskState"], r["PercentComplete"] = "Running", 0
	if t.Finished {
		r["TaskState"], r["PercentComplete"] = "Completed", 100
	}
	r["TaskStatus"] = "OK"
	r["Messages"] = []object{}
	if t.Failure != nil {
		r["TaskState"], r["TaskStatus"] = "Exception", "Critical"
		r["Messages"] = inside(errorBody(*t.Failure), "error", "@Message.ExtendedInfo")
	}
	return r
}

// accountService is read-only: the account is given to the server.
func accountService() object {
	r := resource(accountServicePath, accountServiceType, "AccountService", "Account Service")
	r["ServiceEnabled"] = true
	r["Status"] = healthy()
	r["Accounts"] = link(accountsPath)
	r["Roles"] = link(rolesPath)
	return r
}

func accountResource(user string) object {
	r := resource(accountsPath+"/1", accountType, "1", "Account of "+user)
	r["UserName"] = user
	r["Password"] = nil
	r["Enabled"] = true
	r["Locked"] = false
	r["RoleId"] = administrator
	r["AccountTypes"] = []string{"Redfish", "IPMI"}
	r["Links"] = object{"Role": link(rolesPath + "/" + administrator)}
	return r
}

// roles are those that every service must have (DSP0266, privilege model). The
// account has the first one.
var roles = []struct {
	id         string
	privileges []string
}{
	{administrator, []string{"Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"}},
	{"Operator", []string{"Login", "ConfigureSelf", "ConfigureComponents"}},
	{"ReadOnly", []string{"Login", "ConfigureSelf"}},
}

func role(id string, privileges []string) object {
	r := resource(rolesPath+"/"+id, roleType, id, id+" Role")
	r["RoleId"] = id
	r["IsPredefined"] = true
	r["AssignedPrivileges"] = privileges
	return r
}

// eventService says where to subscribe only where somebody may.
func eventService(pushes bool) object {
	r := resource(eventServicePath, eventServiceType, "EventService", "Event Service")
	r["ServiceEnabled"] = true
	r["Status"] = healthy()
	r["ServerSentEventUri"] = eventStreamPath
	r["EventFormatTypes"] = []string{"Event"}
	if pushes {
		r["Subscriptions"] = link(subscriptionsPath)
		r["DeliveryRetryAttempts"], r["DeliveryRetryIntervalSeconds"] = deliveryAttempts, seconds(deliveryInterval)
		r["EventTypesForSubscription"], r["RegistryPrefixes"], r["ResourceTypes"] = []string{powerEventType}, []string{eventPrefix}, []string{"ComputerSystem"}
	}
	return r
}

// registries are the message registries that are used, as DMTF publishes them.
var registries = []struct{ id, version string }{{"Base", "1.18.2"}, {"ResourceEvent", "1.4.3"}}

func registryFile(id, version string) object {
	minor := version[:strings.LastIndexByte(version, '.')]
	r := resource(registriesPath+"/"+id, registryFileType, id, id+" Message Registry File")
	r["Registry"] = id + "." + minor
	r["Languages"] = []string{"en"}
	r["Location"] = []object{{
		"Language":       "en",
		"PublicationUri": "http://redfish.dmtf.org/registries/" + id + "." + version + ".json",
	}}
	return r
}

// odata is the OData service document, which lists what the root leads to.
func odata() object {
	values := []object{{"name": "Service", "kind": "Singleton", "url": rootPath + "/"}}
	for _, s := range services {
		values = append(values, object{"name": s.property, "kind": "Singleton", "url": s.path})
	}
	return object{"@odata.context": metadataPath, "value": values}
}

// metadata is the OData metadata document: where the schemas of all types are.
func metadata() []byte {
	var x strings.Builder
	x.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
		"<edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n")
	reference := func(schema string, namespaces ...string) {
		fmt.Fprintf(&x, "  <edmx:Reference Uri=\"http://redfish.dmtf.org/schemas/v1/%s_v1.xml\">\n", schema)
		for _, n := range namespaces {
			fmt.Fprintf(&x, "    <edmx:Include Namespace=\"%s\"/>\n", n)
		}
		x.WriteString("  </edmx:Reference>\n")
	}
	for _, typ := range types {
		namespace := strings.TrimPrefix(typ[:strings.LastIndexByte(typ, '.')], "#")
		schema, _, _ := strings.Cut(namespace, ".")
		reference(schema, schema, namespace)
	}
	for _, c := range []string{
		"ComputerSystem", "Manager", "Chassis", "VirtualMedia", "Session", "Task", "ManagerAccount", "Role", "MessageRegistryFile",
		"Processor", "Memory", "EthernetInterface", "Storage", "LogService", "LogEntry",
	} {
		reference(c+"Collection", c+"Collection")
	}
	reference("Message", "Message", "Message.v1_1_2")
	x.WriteString("  <edmx:Reference Uri=\"http://redfish.dmtf.org/schemas/v1/RedfishExtensions_v1.xml\">\n" +
		"    <edmx:Include Namespace=\"RedfishExtensions.v1_0_0\" Alias=\"Redfish\"/>\n  </edmx:Reference>\n" +
		"  <edmx:DataServices>\n    <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">\n" +
		"      <EntityContainer Name=\"Service\" Extends=\"ServiceRoot.v1_14_0.ServiceContainer\"/>\n" +
		"    </Schema>\n  </edmx:DataServices>\n</edmx:Edmx>\n")
	return []byte(x.String())
}

// uuid derives a name-based UUID (RFC 9562, version 8), so that a host keeps it
// over restarts of the service.
func uuid(name string) string {
	h := sha256.Sum256([]byte("fakebmc " + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// describedBy is the Link header that names a resource's schema.
func describedBy(o object) string {
	typ, _ := o["@odata.type"].(string)
	end := strings.LastIndexByte(typ, '.')
	if end < 0 { // as a mockup may have it
		return ""
	}
	schema := strings.TrimPrefix(typ[:end], "#")
	return "<http://redfish.dmtf.org/schemas/v1/" + schema + ".json>; rel=describedby"
}
