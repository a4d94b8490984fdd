package redfish

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
)

var (
	applyTimes    = []string{"Immediate", "OnReset"}
	bootEnabled   = []string{fakebmc.BootDisabled, fakebmc.BootOnce, fakebmc.BootContinuous}
	managerResets = []fakebmc.ResetType{fakebmc.ResetForceRestart, fakebmc.ResetGracefulRestart}
	timeoutAction = []struct {
		redfish string
		reset   fakebmc.ResetType
	}{{"None", ""}, {"ResetSystem", fakebmc.ResetForceRestart}, {"PowerCycle", fakebmc.ResetPowerCycle}, {"PowerDown", fakebmc.ResetForceOff}}
)

// bootDevice is the device of a boot override of [fakebmc.BootDevice].
const bootDevice = "UefiTargetBootSourceOverride"

// settings are the properties of the ComputerSystem that can be changed.
func settings(b *fakebmc.BMC) object {
	boot := object{
		"BootSourceOverrideEnabled":                         fakebmc.BootDisabled,
		"BootSourceOverrideTarget":                          fakebmc.BootNone,
		"BootSourceOverrideTarget@Redfish.AllowableValues":  []string{fakebmc.BootNone},
		"BootSourceOverrideEnabled@Redfish.AllowableValues": []string{fakebmc.BootDisabled},
	}
	if s, ok := b.System().(fakebmc.Booter); ok {
		targets, modes, err := s.Bootable()
		if set, setErr := s.Boot(); err == nil && setErr == nil {
			boot = object{
				"BootSourceOverrideEnabled":                         set.Enabled,
				"BootSourceOverrideTarget":                          set.Target,
				"BootSourceOverrideMode":                            set.Mode,
				"BootSourceOverrideTarget@Redfish.AllowableValues":  targets,
				"BootSourceOverrideEnabled@Redfish.AllowableValues": bootEnabled,
				"BootSourceOverrideMode@Redfish.AllowableValues":    modes,
			}
			if slices.Contains(targets, fakebmc.BootDevice) {
				boot[bootDevice] = nil
				if set.Device != "" {
					boot[bootDevice] = set.Device
				}
			}
		}
	}
	w := b.Watchdog()
	timer := object{"FunctionEnabled": w.Enabled, "TimeoutAction": "None", "WarningAction": "None", "Status": object{"State": "Disabled"}}
	if w.Enabled {
		timer["Status"] = object{"State": "Enabled"}
	}
	for _, a := range timeoutAction {
		if a.reset == w.Action {
			timer["TimeoutAction"] = a.redfish
		}
	}
	return object{"Boot": boot, "HostWatchdogTimer": timer, "PowerRestorePolicy": b.RestorePolicy()}
}

func notInList(value, property string) response {
	return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, value, property)
}

// bootChange is a change of a boot override.
type bootChange struct {
	BootSourceOverrideEnabled, BootSourceOverrideTarget, BootSourceOverrideMode *string
	UefiTargetBootSourceOverride                                                *string
}

// made is the override that it makes of a host's, if that is possible.
func (c *bootChange) made(booter fakebmc.Booter, bootable func(fakebmc.Booter) (targets, modes []string, err error)) (boot fakebmc.Boot, refused response, ok bool) {
	if booter == nil {
		return boot, refusal(http.StatusBadRequest, msgPropertyUnknown, nil, "Boot"), false
	}
	targets, modes, err := bootable(booter)
	if err == nil {
		boot, err = booter.Boot()
	}
	if err != nil {
		return boot, answered(fakebmc.Failure(err)), false
	}
	for _, f := range []struct {
		property string
		given    *string
		into     *string
		allowed  []string
	}{
		{"BootSourceOverrideEnabled", c.BootSourceOverrideEnabled, &boot.Enabled, bootEnabled},
		{"BootSourceOverrideTarget", c.BootSourceOverrideTarget, &boot.Target, targets},
		{"BootSourceOverrideMode", c.BootSourceOverrideMode, &boot.Mode, modes},
	} {
		if f.given == nil {
			continue
		}
		if !slices.Contains(f.allowed, *f.given) {
			return boot, notInList(*f.given, f.property), false
		}
		*f.into = *f.given
	}
	if device := c.UefiTargetBootSourceOverride; device != nil {
		if !slices.Contains(targets, fakebmc.BootDevice) {
			return boot, refusal(http.StatusBadRequest, msgPropertyUnknown, nil, "Boot/"+bootDevice), false
		}
		boot.Device = *device
	}
	return boot, response{}, true
}

// patchSystem changes settings, of the boot override to what is bootable. All are checked before
// the first one changes.
func patchSystem(b *fakebmc.BMC, body []byte, bootable func(fakebmc.Booter) (targets, modes []string, err error)) response {
	var in struct {
		PowerRestorePolicy *fakebmc.RestorePolicy
		Boot               *bootChange
		// A change of a settings object says when it is to apply; an override applies to the next
		// boot.
		ApplyTime *struct {
			Type      *string `json:"@odata.type"`
			ApplyTime *string
		} `json:"@Redfish.SettingsApplyTime"`
		HostWatchdogTimer *struct {
			FunctionEnabled *bool
			TimeoutAction   *string
		}
	}
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	if p := in.PowerRestorePolicy; p != nil && !slices.Contains(fakebmc.RestorePolicies(), *p) {
		return notInList(string(*p), "PowerRestorePolicy")
	}
	if t := in.ApplyTime; t != nil && t.ApplyTime != nil && !slices.Contains(applyTimes, *t.ApplyTime) {
		return notInList(*t.ApplyTime, "ApplyTime")
	}
	var boot fakebmc.Boot
	booter, _ := b.System().(fakebmc.Booter)
	if in.Boot != nil {
		var refused response
		var ok bool
		if boot, refused, ok = in.Boot.made(booter, bootable); !ok {
			return refused
		}
	}
	w := b.Watchdog()
	if t := in.HostWatchdogTimer; t != nil {
		if t.FunctionEnabled != nil {
			w.Enabled = *t.FunctionEnabled
		}
		if t.TimeoutAction != nil {
			i := slices.IndexFunc(timeoutAction, func(a struct {
				redfish string
				reset   fakebmc.ResetType
			}) bool {
				return a.redfish == *t.TimeoutAction
			})
			if i < 0 {
				return notInList(*t.TimeoutAction, "TimeoutAction")
			}
			w.Action = timeoutAction[i].reset
		}
	}

	var errs []error
	if in.Boot != nil {
		errs = append(errs, booter.SetBoot(boot))
	}
	if in.PowerRestorePolicy != nil {
		errs = append(errs, b.SetRestorePolicy(*in.PowerRestorePolicy))
	}
	if in.HostWatchdogTimer != nil {
		errs = append(errs, b.SetWatchdog(w))
	}
	if err := errors.Join(errs...); err != nil {
		return answered(fakebmc.Failure(err))
	}
	return done()
}

// settingsTag names the settings as they are.
func settingsTag(b *fakebmc.BMC) string { return hash(settings(b)) }

// settingsIn is the tag of the settings that a system shows.
func settingsIn(system object) string {
	return hash(object{"Boot": system["Boot"], "HostWatchdogTimer": system["HostWatchdogTimer"], "PowerRestorePolicy": system["PowerRestorePolicy"]})
}

// The virtual media of a manager: one CD drive.
const mediaID = "Cd"

func mediaPath(b *fakebmc.BMC) string { return fakebmc.ManagersPath + "/" + b.ID() + "/VirtualMedia" }

// drive is the virtual CD drive of a host.
type drive struct {
	bmc *fakebmc.BMC
	bay fakebmc.MediaBay
}

// The actions of a drive.
const (
	insertAction = "/Actions/VirtualMedia.InsertMedia"
	ejectAction  = "/Actions/VirtualMedia.EjectMedia"
)

// resolve finds the endpoint of a path, where the drive is at another one.
func (d drive) resolve(at, path string, allowed []*url.URL, e *endpoint) {
	switch path {
	case at:
		e.get = d.show
	case at + insertAction:
		e.media = true
		e.post = func(effects fakebmc.Effects, body []byte) response { return d.insert(effects, body, allowed) }
	case at + ejectAction:
		e.post = func(_ fakebmc.Effects, body []byte) response {
			if a, ok := parse(body, new(struct{})); !ok && len(body) > 0 {
				return a
			}
			return d.eject()
		}
	}
}

func (d drive) show() response {
	image, err := d.bay.Media()
	if err != nil {
		return refusal(http.StatusInternalServerError, fakebmc.MsgInternalError, err)
	}
	path := mediaPath(d.bmc) + "/" + mediaID
	r := resource(path, mediaType, mediaID, "Virtual CD of "+d.bmc.Host())
	r["MediaTypes"] = []string{"CD", "DVD"}
	r["Image"], r["ImageName"] = nil, nil
	r["Inserted"] = image != ""
	r["WriteProtected"] = true
	r["ConnectedVia"] = "NotConnected"
	if image != "" {
		r["Image"], r["ImageName"], r["ConnectedVia"] = image, image[strings.LastIndexByte(image, '/')+1:], "URI"
	}
	r["Actions"] = object{
		"#VirtualMedia.InsertMedia": object{"target": path + insertAction},
		"#VirtualMedia.EjectMedia":  object{"target": path + ejectAction},
	}
	return found(r)
}

// lies reports whether an image's URL is, or lies under, one that was allowed: the
// same scheme and host to the letter, and a path that goes nowhere else.
func lies(image string, base *url.URL) bool {
	u, err := url.Parse(image)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil || u.Opaque != "" || path.Clean(u.Path) != u.Path {
		return false
	}
	return u.Path == base.Path || strings.HasPrefix(u.Path, strings.TrimSuffix(base.Path, "/")+"/")
}

// medium describes an image, in the words of a client.
type medium struct {
	Image                                *string
	Inserted, WriteProtected             *bool
	TransferMethod, TransferProtocolType *string
	UserName, Password                   *string
	MediaType, MediaTypes                any
}

// insert is the action that inserts an image.
func (d drive) insert(effects fakebmc.Effects, body []byte, allowed []*url.URL) response {
	var in medium
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	if in.Image == nil || *in.Image == "" {
		return refusal(http.StatusBadRequest, msgParameterMissing, nil, "VirtualMedia.InsertMedia", "Image")
	}
	for _, p := range []struct {
		name string
		is   *bool
	}{{"Inserted", in.Inserted}, {"WriteProtected", in.WriteProtected}} {
		if p.is != nil && !*p.is { // a CD in a drive is both
			return refusal(http.StatusBadRequest, fakebmc.MsgParameterNotInList, nil, "false", p.name, "VirtualMedia.InsertMedia")
		}
	}
	return d.put(effects, *in.Image, allowed)
}

// change is a PATCH of a drive that has no actions: an image goes in by its name, and out by none.
func (d drive) change(effects fakebmc.Effects, body []byte, allowed []*url.URL) response {
	var in medium
	if a, ok := parseNullable(body, &in, "Image"); !ok {
		return a
	}
	if p := in.WriteProtected; p != nil && !*p {
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, "false", "WriteProtected")
	}
	image, named := given(body, "Image")
	switch inserted := in.Inserted == nil || *in.Inserted; {
	case !inserted && image != "":
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, "false", "Inserted")
	case !inserted || named && image == "":
		if effects.Ignores() || effects.Loses("Image") {
			return done()
		}
		return d.eject()
	case named:
		return d.put(effects, image, allowed)
	}
	return done() // nothing changes
}

// put hands on an image that lies where it was allowed, unless it gets lost. Nothing is fetched
// here.
func (d drive) put(effects fakebmc.Effects, image string, allowed []*url.URL) response {
	if !slices.ContainsFunc(allowed, func(base *url.URL) bool { return lies(image, base) }) {
		return refusal(http.StatusForbidden, msgAccessDenied, nil, image)
	}
	if there, err := d.bay.Media(); err != nil || there != "" {
		return refusal(http.StatusConflict, msgResourceInUse, err)
	}
	if effects.Ignores() || effects.Loses("Image") {
		return done()
	}
	if err := d.bay.InsertMedia(image); err != nil {
		return notInserted(image, err)
	}
	return done()
}

// notInserted answers the client with what the System's error says, and whose matter it is.
func notInserted(image string, err error) response {
	var a fakebmc.Answer
	switch {
	case errors.Is(err, fakebmc.ErrNoImage):
		a = fakebmc.Refuse(http.StatusBadRequest, fakebmc.MsgMissingAtURI, err, image)
	case errors.Is(err, fakebmc.ErrConflict):
		a = fakebmc.Refuse(http.StatusConflict, msgResourceInUse, err)
	case errors.Is(err, fakebmc.ErrUnsupported):
		a = fakebmc.Refuse(http.StatusBadRequest, msgActionNotSupported, err, "VirtualMedia.InsertMedia")
	default:
		return answered(fakebmc.Failure(err))
	}
	a.Message = err.Error()
	return answered(a)
}

func (d drive) eject() response {
	if err := d.bay.EjectMedia(); err != nil {
		return answered(fakebmc.Failure(err))
	}
	return done()
}
