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
	bootEnabled   = []string{fakebmc.BootDisabled, fakebmc.BootOnce, fakebmc.BootContinuous}
	managerResets = []fakebmc.ResetType{fakebmc.ResetForceRestart, fakebmc.ResetGracefulRestart}
	timeoutAction = []struct {
		redfish string
		reset   fakebmc.ResetType
	}{{"None", ""}, {"ResetSystem", fakebmc.ResetForceRestart}, {"PowerCycle", fakebmc.ResetPowerCycle}, {"PowerDown", fakebmc.ResetForceOff}}
)

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

// patchSystem changes settings. All are checked before the first one changes.
func patchSystem(b *fakebmc.BMC, body []byte) response {
	var in struct {
		PowerRestorePolicy *fakebmc.RestorePolicy
		Boot               *struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget, BootSourceOverrideMode *string }
		HostWatchdogTimer  *struct {
			FunctionEnabled *bool
			TimeoutAction   *string
		}
	}
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	notInList := func(value, property string) response {
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, value, property)
	}
	if p := in.PowerRestorePolicy; p != nil && !slices.Contains(fakebmc.RestorePolicies(), *p) {
		return notInList(string(*p), "PowerRestorePolicy")
	}
	var boot fakebmc.Boot
	booter, _ := b.System().(fakebmc.Booter)
	if in.Boot != nil {
		if booter == nil {
			return refusal(http.StatusBadRequest, msgPropertyUnknown, nil, "Boot")
		}
		targets, modes, err := booter.Bootable()
		if err != nil {
			return answered(fakebmc.Failure(err))
		}
		if boot, err = booter.Boot(); err != nil {
			return answered(fakebmc.Failure(err))
		}
		for _, f := range []struct {
			property string
			given    *string
			into     *string
			allowed  []string
		}{
			{"BootSourceOverrideEnabled", in.Boot.BootSourceOverrideEnabled, &boot.Enabled, bootEnabled},
			{"BootSourceOverrideTarget", in.Boot.BootSourceOverrideTarget, &boot.Target, targets},
			{"BootSourceOverrideMode", in.Boot.BootSourceOverrideMode, &boot.Mode, modes},
		} {
			if f.given == nil {
				continue
			}
			if !slices.Contains(f.allowed, *f.given) {
				return notInList(*f.given, f.property)
			}
			*f.into = *f.given
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
		e.post = func(_ fakebmc.Effects, body []byte) response { return d.insert(body, allowed) }
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

// lies tells whether an image's URL is, or lies under, one that was allowed: the
// same scheme and host to the letter, and a path that goes nowhere else.
func lies(image string, base *url.URL) bool {
	u, err := url.Parse(image)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil || u.Opaque != "" || path.Clean(u.Path) != u.Path {
		return false
	}
	return u.Path == base.Path || strings.HasPrefix(u.Path, strings.TrimSuffix(base.Path, "/")+"/")
}

// insert hands on an image that lies where it was allowed. Nothing is fetched here.
func (d drive) insert(body []byte, allowed []*url.URL) response {
	var in struct {
		Image                                *string
		Inserted, WriteProtected             *bool
		TransferMethod, TransferProtocolType *string
		UserName, Password                   *string
		MediaType                            *string
	}
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	if in.Image == nil || *in.Image == "" {
		return refusal(http.StatusBadRequest, msgParameterMissing, nil, "VirtualMedia.InsertMedia", "Image")
	}
	if !slices.ContainsFunc(allowed, func(base *url.URL) bool { return lies(*in.Image, base) }) {
		return refusal(http.StatusForbidden, msgAccessDenied, nil, *in.Image)
	}
	if image, err := d.bay.Media(); err != nil || image != "" {
		return refusal(http.StatusConflict, msgResourceInUse, err)
	}
	if err := d.bay.InsertMedia(*in.Image); err != nil {
		return notInserted(*in.Image, err)
	}
	return done()
}

// notInserted tells the client what the System's error says, and whose matter it is.
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
