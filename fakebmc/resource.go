package fakebmc

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// object is a Redfish resource as JSON; keys are written in order.
type object map[string]any

// The schema versions to which the resources keep.
const (
	rootType           = "#ServiceRoot.v1_14_0.ServiceRoot"
	systemType         = "#ComputerSystem.v1_18_0.ComputerSystem"
	managerType        = "#Manager.v1_15_0.Manager"
	chassisType        = "#Chassis.v1_20_0.Chassis"
	sessionServiceType = "#SessionService.v1_1_8.SessionService"
	sessionType        = "#Session.v1_4_0.Session"
	redfishVersion     = "1.15.0"

	rootPath           = "/redfish/v1"
	managersPath       = rootPath + "/Managers"
	chassisPath        = rootPath + "/Chassis"
	sessionServicePath = rootPath + "/SessionService"
	sessionsPath       = sessionServicePath + "/Sessions"
)

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

// root carries @odata.id with the trailing slash that clients ask for.
func root(uuid string) object {
	r := resource(rootPath+"/", rootType, "RootService", "Root Service")
	r["RedfishVersion"] = redfishVersion
	r["UUID"] = uuid
	r["Systems"] = link(systemsPath)
	r["Managers"] = link(managersPath)
	r["Chassis"] = link(chassisPath)
	r["SessionService"] = link(sessionServicePath)
	r["Links"] = object{"Sessions": link(sessionsPath)}
	return r
}

func healthy() object { return object{"State": "Enabled", "Health": "OK"} }

// system advertises only what is executed. Boot is there because clients can't
// do without it; nothing in it can be set.
func system(host string, p PowerState) object {
	path := systemsPath + "/" + host
	r := resource(path, systemType, host, host)
	r["SystemType"] = "Physical"
	r["Manufacturer"] = "fencelab"
	r["Model"] = "fakebmc"
	r["SerialNumber"] = host
	r["UUID"] = uuid(host)
	r["Status"] = healthy()
	r["PowerState"] = p
	if p == "" {
		r["PowerState"] = nil
	}
	r["Boot"] = object{
		"BootSourceOverrideEnabled":                         "Disabled",
		"BootSourceOverrideTarget":                          "None",
		"BootSourceOverrideTarget@Redfish.AllowableValues":  []string{"None"},
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{"Disabled"},
	}
	r["Links"] = object{
		"ManagedBy": links(managersPath, host),
		"Chassis":   links(chassisPath, host),
	}
	r["Actions"] = object{"#ComputerSystem.Reset": object{
		"target":                            path + resetAction,
		"ResetType@Redfish.AllowableValues": resetTypes,
	}}
	return r
}

func manager(host string) object {
	r := resource(managersPath+"/"+host, managerType, host, "Manager of "+host)
	r["ManagerType"] = "BMC"
	r["UUID"] = uuid("manager of " + host)
	r["PowerState"] = On
	r["Status"] = healthy()
	r["Links"] = object{
		"ManagerForServers": links(systemsPath, host),
		"ManagerForChassis": links(chassisPath, host),
	}
	return r
}

func chassis(host string) object {
	r := resource(chassisPath+"/"+host, chassisType, host, "Chassis of "+host)
	r["ChassisType"] = "RackMount"
	r["Status"] = healthy()
	r["Links"] = object{
		"ComputerSystems": links(systemsPath, host),
		"ManagedBy":       links(managersPath, host),
	}
	return r
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
	if typ == "" {
		return ""
	}
	schema := strings.TrimPrefix(typ[:strings.LastIndexByte(typ, '.')], "#")
	return "<http://redfish.dmtf.org/schemas/v1/" + schema + ".json>; rel=describedby"
}

// content is the body and the further headers of an answer.
type content struct {
	body   object
	header http.Header
}
