//go:build cgo && libvirt_dlopen

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/fakebmc"
)

// Domain is a libvirt domain as the system behind a BMC. It implements
// fakebmc.System, Resetter, Watcher, Booter, MediaBay and Inventoried.
//
// A boot override and a virtual drive belong to an instance of the domain, which is
// one life of its hypervisor process: they take effect when this package starts one,
// that is with On, PowerCycle, and a ForceRestart that has to bring them in or out.
// A restart by the guest keeps the instance.
type Domain struct {
	all  *Domains
	name string
	uuid string

	bay   lock // one change of the virtual media at a time; it is taken before power
	power lock // one change of the instance at a time; a download never holds it

	destroyed time.Time // the last instance that was ended here; power guards it

	mu       sync.Mutex // guards what follows
	boot     fakebmc.Boot
	image    *image // inserted, or nil
	started  instance
	known    *described // nil when the definition has to be read
	told     fakebmc.PowerState
	watchers []*func(fakebmc.PowerState)
}

var noOverride = fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone}

// extras are what an instance has beyond its domain's definition.
type extras struct {
	target string // to boot from; empty is the definition's
	file   string // in the virtual drive; empty is none
}

// instance is one that was started here. Another one, by whomever, has another id.
type instance struct {
	id    uint
	drive string // the virtual drive, or empty without one
	extras
}

// described is what a definition says.
type described struct {
	targets   []string
	mode      string
	inventory fakebmc.Inventory
}

// Name is the domain's.
func (d *Domain) Name() string { return d.name }

// UUID is the domain's.
func (d *Domain) UUID() string { return d.uuid }

// on makes a call of what f does with the domain's object.
func on[T any](d *Domain, f func(connection, *libvirt.Domain) (T, error)) func(connection) (T, error) {
	return func(conn connection) (none T, err error) {
		dom, err := conn.LookupDomainByUUIDString(d.uuid)
		if err != nil {
			return none, err
		}
		defer dom.Free() // it ends with the connection at the latest
		return f(conn, dom)
	}
}

// failed is err, if any, with what was attempted.
func (d *Domain) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s domain %s: %w", what, d.name, legible(err))
}

// learn asks for what changes nothing.
func learn[T any](d *Domain, what string, f func(*libvirt.Domain) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(d.all.ctx, readLimit)
	defer cancel()
	value, err := call(ctx, d.all.line, on(d, func(_ connection, dom *libvirt.Domain) (T, error) { return f(dom) }), func() {})
	return value, d.failed(what, err)
}

// change changes the instance. after is called when that is over, or will not begin.
func (d *Domain) change(ctx context.Context, what string, f func(connection, *libvirt.Domain) error, after func()) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	do := on(d, func(conn connection, dom *libvirt.Domain) (struct{}, error) { return struct{}{}, f(conn, dom) })
	_, err := callInTurn(ctx, d.all.line, d.power, do, after)
	return d.failed(what, err)
}

// PowerState implements fakebmc.System. Off is said only when libvirt has no process
// of the domain any more: one whose guest has crashed or ended may still have one.
func (d *Domain) PowerState() (fakebmc.PowerState, error) {
	return learn(d, "read the state of", powerState)
}

func powerState(dom *libvirt.Domain) (fakebmc.PowerState, error) {
	state, reason, err := dom.GetState()
	if err != nil {
		return "", err
	}
	switch state {
	case libvirt.DOMAIN_SHUTOFF:
		return fakebmc.Off, nil
	case libvirt.DOMAIN_SHUTDOWN:
		return fakebmc.PoweringOff, nil
	case libvirt.DOMAIN_PAUSED:
		if libvirt.DomainPausedReason(reason) == libvirt.DOMAIN_PAUSED_STARTING_UP {
			return fakebmc.PoweringOn, nil
		}
		return fakebmc.Paused, nil
	case libvirt.DOMAIN_PMSUSPENDED:
		return fakebmc.Paused, nil
	case libvirt.DOMAIN_CRASHED:
		if active, err := dom.IsActive(); err != nil || active {
			return fakebmc.Paused, err
		}
		return fakebmc.Off, nil
	}
	return fakebmc.On, nil
}

var resets = []fakebmc.ResetType{fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart,
	fakebmc.ResetForceRestart, fakebmc.ResetNmi, fakebmc.ResetPowerCycle, fakebmc.ResetPushPowerButton}

// Resets implements fakebmc.Resetter.
func (d *Domain) Resets() []fakebmc.ResetType { return resets }

// Reset implements fakebmc.System. It returns when libvirt has done it.
func (d *Domain) Reset(t fakebmc.ResetType) error {
	if !slices.Contains(resets, t) {
		return fmt.Errorf("%s of domain %s: %w", cmp.Or(string(t), "a reset without a type"), d.name, fakebmc.ErrUnsupported)
	}
	return d.change(d.all.ctx, string(t)+" of", func(conn connection, dom *libvirt.Domain) error {
		state, err := powerState(dom)
		if err != nil {
			return err
		}
		off := state == fakebmc.Off
		if t == fakebmc.ResetPushPowerButton {
			t = fakebmc.ResetGracefulShutdown
			if off {
				t = fakebmc.ResetOn
			}
		}
		switch t {
		case fakebmc.ResetOn:
			switch state {
			case fakebmc.PoweringOff:
				return fmt.Errorf("it is powering off: %w", fakebmc.ErrConflict)
			case fakebmc.Off:
				return d.start(conn, dom)
			}
			return nil
		case fakebmc.ResetForceOff:
			if off {
				return nil
			}
			return d.destroy(dom)
		case fakebmc.ResetGracefulShutdown:
			if off {
				return nil
			}
			return unless(dom, true, dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN))
		}
		if off {
			return fmt.Errorf("it is off: %w", fakebmc.ErrConflict)
		}
		switch t {
		case fakebmc.ResetGracefulRestart:
			return late(dom, dom.Reboot(libvirt.DOMAIN_REBOOT_ACPI_POWER_BTN))
		case fakebmc.ResetNmi:
			return late(dom, dom.InjectNMI(0))
		case fakebmc.ResetForceRestart:
			id, err := dom.GetID()
			if err != nil {
				return err
			}
			if d.instance(id).extras == d.wanted() {
				return late(dom, dom.Reset(0))
			}
		}
		if err := d.destroy(dom); err != nil {
			return err
		}
		return d.start(conn, dom)
	}, func() {})
}

// unless forgives an operation that failed because the domain got by itself, or by
// somebody else, to where it should be.
func unless(dom *libvirt.Domain, off bool, err error) error {
	if err == nil {
		return nil
	}
	if state, stateErr := powerState(dom); stateErr == nil && (state == fakebmc.Off) == off {
		return nil
	}
	return err
}

// late says of an operation that failed because the domain went off meanwhile what
// it would have said had it been off before.
func late(dom *libvirt.Domain, err error) error {
	if err == nil {
		return nil
	}
	if state, stateErr := powerState(dom); stateErr == nil && state == fakebmc.Off {
		return fmt.Errorf("it is off: %w", fakebmc.ErrConflict)
	}
	return err
}

// start begins an instance.
func (d *Domain) start(conn connection, dom *libvirt.Domain) error {
	saved, err := dom.HasManagedSaveImage(0)
	if err != nil && !errors.Is(err, libvirt.ERR_NO_SUPPORT) {
		return err
	}
	if saved {
		return fmt.Errorf("its memory is saved, so that it would go on rather than boot; discard it with virsh managedsave-remove %s: %w",
			d.name, fakebmc.ErrConflict)
	}
	for range starts {
		time.Sleep(time.Until(d.destroyed.Add(heard)))
		now := instance{extras: d.wanted()}
		if now.extras == (extras{}) {
			err = unless(dom, false, dom.Create())
		} else {
			now.drive, err = d.startWith(conn, dom, now.extras)
		}
		if err != nil {
			return err
		}
		// What is known of an instance stays in the object with which it was looked up.
		running, err := conn.LookupDomainByUUIDString(d.uuid)
		if err != nil {
			return err
		}
		now.id, err = running.GetID() // that it is off is no error of libvirt's, and has no words
		_ = running.Free()
		if err == nil {
			d.began(now)
			return nil
		}
	}
	return fmt.Errorf("it was started %d times, and was off again at once: see libvirt's log of the domain", starts)
}

// libvirt learns late that the monitor of an instance has ended, and until its commit dd2f36d6 of
// 2024 it takes that for the end of the instance that was started meanwhile, and ends that as
// crashed.
const (
	// heard is how long it takes to learn that.
	heard = 200 * time.Millisecond
	// starts is how often an instance is started that is off at once all the same.
	starts = 3
)

// destroy ends an instance.
func (d *Domain) destroy(dom *libvirt.Domain) error {
	err := unless(dom, true, dom.Destroy())
	d.destroyed = time.Now()
	return err
}

func (d *Domain) began(now instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started = now
	if d.boot.Enabled == fakebmc.BootOnce {
		d.boot.Enabled, d.boot.Target = fakebmc.BootDisabled, fakebmc.BootNone
	}
}

// startWith begins an instance whose definition differs from the domain's, which
// stays as it is.
func (d *Domain) startWith(conn connection, dom *libvirt.Domain, x extras) (drive string, err error) {
	def, err := read(dom, libvirt.DOMAIN_XML_INACTIVE|libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		return "", err
	}
	if x.file != "" {
		if drive, err = def.insert(x.file); err != nil {
			return "", err
		}
	}
	if x.target != "" {
		if err := def.bootFrom(x.target); err != nil {
			return "", err
		}
	}
	text, err := def.String()
	if err != nil {
		return "", err
	}
	created, err := conn.DomainCreateXML(text, 0)
	if err != nil {
		return "", err
	}
	_ = created.Free() // it ends with the connection at the latest
	return drive, nil
}

func read(dom *libvirt.Domain, flags libvirt.DomainXMLFlags) (definition, error) {
	text, err := dom.GetXMLDesc(flags)
	if err != nil {
		return definition{}, err
	}
	return parse(text)
}

// wanted are the extras of the next instance.
func (d *Domain) wanted() (x extras) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boot.Enabled != fakebmc.BootDisabled && d.boot.Target != fakebmc.BootNone {
		x.target = d.boot.Target
	}
	if d.image != nil {
		x.file = d.image.file
	}
	return x
}

// instance is what is known of the one that runs. One that others started has
// nothing of ours.
func (d *Domain) instance(id uint) instance {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started.id == id {
		return d.started
	}
	return instance{id: id}
}

// Bootable implements fakebmc.Booter.
func (d *Domain) Bootable() (targets, modes []string, err error) {
	known, err := d.definition()
	if err != nil {
		return nil, nil, err
	}
	return known.targets, []string{known.mode}, nil
}

// definition reads the domain's, unless it is known.
func (d *Domain) definition() (*described, error) {
	d.mu.Lock()
	known := d.known
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	known, err := learn(d, "read the definition of", func(dom *libvirt.Domain) (*described, error) {
		def, err := read(dom, libvirt.DOMAIN_XML_INACTIVE)
		if err != nil {
			return nil, err
		}
		inventory := def.inventory()
		sizes(dom, inventory.Drives)
		return &described{def.targets(), def.mode(), inventory}, nil
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.known = known
	d.mu.Unlock()
	return known, nil
}

// Boot implements fakebmc.Booter.
func (d *Domain) Boot() (fakebmc.Boot, error) {
	_, modes, err := d.Bootable()
	if err != nil {
		return fakebmc.Boot{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boot
	b.Mode = modes[0]
	return b, nil
}

// SetBoot implements fakebmc.Booter.
func (d *Domain) SetBoot(b fakebmc.Boot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot = b
	return nil
}

// Media implements fakebmc.MediaBay.
func (d *Domain) Media() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.image == nil {
		return "", nil
	}
	return d.image.url, nil
}

// InsertMedia implements fakebmc.MediaBay. An instance without a virtual drive has
// the image when it is started the next time.
func (d *Domain) InsertMedia(from string) error {
	const what = "insert an image into"
	if d.all.remote {
		return d.failed(what, fmt.Errorf("its libvirt is on another machine, and would have to find the image there: %w", fakebmc.ErrUnsupported))
	}
	if err := d.takeBay(d.all.ctx); err != nil {
		return d.failed(what, err)
	}
	defer d.bay.free()
	if d.inserted() != nil {
		return d.failed(what, fmt.Errorf("there is one: %w", fakebmc.ErrConflict))
	}
	i, err := fetch(d.all.ctx, from, d.all.options.Images)
	if err != nil {
		return d.failed(what, err)
	}
	return d.exchange(d.all.ctx, what, i)
}

// EjectMedia implements fakebmc.MediaBay.
func (d *Domain) EjectMedia() error { return d.eject(d.all.ctx) }

func (d *Domain) eject(ctx context.Context) error {
	const what = "eject the image of"
	if err := d.takeBay(ctx); err != nil {
		return d.failed(what, err)
	}
	defer d.bay.free()
	if d.inserted() == nil {
		return nil
	}
	return d.exchange(ctx, what, nil)
}

func (d *Domain) takeBay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	return d.bay.take(ctx)
}

func (d *Domain) inserted() *image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image
}

// exchange puts an image, or none, into the virtual drive, also into that of the
// instance that runs, if it has one. The guest can't hold the old one back: nobody
// asks it when a BMC's drive is pulled. The file of the image that is not in the drive
// in the end is deleted.
func (d *Domain) exchange(ctx context.Context, what string, i *image) error {
	out := i
	return d.change(ctx, what, func(_ connection, dom *libvirt.Domain) error {
		if err := d.exchangeNow(dom, i); err != nil {
			return err
		}
		d.mu.Lock()
		out, d.image = d.image, i
		d.mu.Unlock()
		return nil
	}, func() {
		_ = out.remove() // its directory goes with the command
	})
}

// exchangeNow changes the instance that runs.
func (d *Domain) exchangeNow(dom *libvirt.Domain, i *image) error {
	if active, err := dom.IsActive(); err != nil || !active {
		return err
	}
	id, err := dom.GetID()
	if err != nil {
		return err
	}
	now := d.instance(id)
	if now.drive == "" {
		return nil
	}
	def, err := read(dom, 0)
	if err != nil {
		return err
	}
	file := ""
	if i != nil {
		file = i.file
	}
	text, err := def.changed(now.drive, file)
	if err != nil {
		return err
	}
	if err := dom.UpdateDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE|libvirt.DOMAIN_DEVICE_MODIFY_FORCE); err != nil {
		return unless(dom, true, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started.file = file
	return nil
}

// Watch implements fakebmc.Watcher.
func (d *Domain) Watch(f func(fakebmc.PowerState)) (stop func()) {
	state, err := d.PowerState()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.watchers) == 0 && err == nil {
		d.told = state
	}
	d.watchers = append(slices.Clip(d.watchers), &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.watchers = slices.DeleteFunc(slices.Clone(d.watchers), func(w *func(fakebmc.PowerState)) bool { return w == &f })
	}
}

// edges are the states to which events lead, whatever the state is when they are
// handled.
var edges = map[libvirt.DomainEventType]fakebmc.PowerState{
	libvirt.DOMAIN_EVENT_STARTED:     fakebmc.On,
	libvirt.DOMAIN_EVENT_RESUMED:     fakebmc.On,
	libvirt.DOMAIN_EVENT_SUSPENDED:   fakebmc.Paused,
	libvirt.DOMAIN_EVENT_PMSUSPENDED: fakebmc.Paused,
	libvirt.DOMAIN_EVENT_CRASHED:     fakebmc.Paused,
	libvirt.DOMAIN_EVENT_SHUTDOWN:    fakebmc.PoweringOff,
	libvirt.DOMAIN_EVENT_STOPPED:     fakebmc.Off,
}

// handle is called for one event after the other.
func (d *Domain) handle(kind libvirt.DomainEventType) {
	if state, ok := edges[kind]; ok {
		d.tell(state)
		return
	}
	d.forget() // it may be defined otherwise now
}

func (d *Domain) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = nil
}

// look makes good for events that were missed or came in another order.
func (d *Domain) look() {
	if state, err := d.PowerState(); err == nil {
		d.tell(state)
	}
}

// tell is called by one goroutine only.
func (d *Domain) tell(state fakebmc.PowerState) {
	d.mu.Lock()
	news := state != d.told
	d.told = state
	watchers := d.watchers
	d.mu.Unlock()
	if !news {
		return
	}
	for _, w := range watchers {
		(*w)(state)
	}
}
