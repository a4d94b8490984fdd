package vms

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
)

// Machine is a domain that somebody else made, on a libvirt of the machine's own. Only its power is touched.
type Machine struct {
	domain *libvirt.Domain
	name   string
	uuid   string
}

// Machines connects to a libvirt, such as qemu:///system, and returns its domains by name: those with the given names, or
// all. disconnect ends the connection; the domains stay as they are.
func Machines(uri string, names ...string) (machines []*Machine, disconnect func() error, err error) {
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to libvirt at %s: %w", uri, err)
	}
	fail := func(err error) ([]*Machine, func() error, error) {
		_, closeErr := conn.Close()
		return nil, nil, errors.Join(err, closeErr)
	}
	domains, err := conn.ListAllDomains(0)
	if err != nil {
		return fail(fmt.Errorf("list the domains of %s: %w", uri, err))
	}
	for i := range domains {
		m := &Machine{domain: &domains[i]}
		if m.name, err = m.domain.GetName(); err == nil {
			m.uuid, err = m.domain.GetUUIDString()
		}
		if err != nil {
			return fail(fmt.Errorf("read a domain of %s: %w", uri, err))
		}
		if len(names) == 0 || slices.Contains(names, m.name) {
			machines = append(machines, m)
		}
	}
	slices.SortFunc(machines, func(a, b *Machine) int { return strings.Compare(a.name, b.name) })
	for _, name := range names {
		if !slices.ContainsFunc(machines, func(m *Machine) bool { return m.name == name }) {
			return fail(fmt.Errorf("find domain %s: %s has none of that name", name, uri))
		}
	}
	return machines, func() error { _, err := conn.Close(); return err }, nil
}

// Name is the domain's.
func (m *Machine) Name() string { return m.name }

// UUID is the domain's.
func (m *Machine) UUID() string { return m.uuid }

// State is the domain's power state. One that shuts down or has stopped for an error of the hypervisor is not off before
// libvirt says so.
func (m *Machine) State() (State, error) {
	state, _, err := m.domain.GetState()
	if err != nil {
		return "", fmt.Errorf("read the state of domain %s: %w", m.name, err)
	}
	switch state {
	case libvirt.DOMAIN_SHUTOFF, libvirt.DOMAIN_CRASHED:
		return StateOff, nil
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		return StatePaused, nil
	default:
		return StateOn, nil
	}
}

// On starts the domain; one that isn't off stays as it is.
func (m *Machine) On() error { return m.unless("start", m.isOn, m.domain.Create) }

// ForceOff destroys the domain's process; one that is off stays as it is.
func (m *Machine) ForceOff() error { return m.unless("force off", m.isOff, m.domain.Destroy) }

// Shutdown asks the guest to shut down; a domain that is off stays as it is.
func (m *Machine) Shutdown() error { return m.unless("shut down", m.isOff, m.domain.Shutdown) }

// Restart resets the domain. It fails if the domain is off, and so do Reboot and Interrupt.
func (m *Machine) Restart() error {
	return m.do("reset", func() error { return m.domain.Reset(0) })
}

// Reboot asks the guest to restart.
func (m *Machine) Reboot() error {
	return m.do("reboot", func() error { return m.domain.Reboot(0) })
}

// Interrupt injects a non-maskable interrupt.
func (m *Machine) Interrupt() error {
	return m.do("interrupt", func() error { return m.domain.InjectNMI(0) })
}

func (*Machine) isOff(s State) bool { return s == StateOff }
func (*Machine) isOn(s State) bool  { return s != StateOff }

// unless does what a domain needs, if it isn't so already. The domain may get there by itself in between, which some drivers
// of libvirt report as an error.
func (m *Machine) unless(what string, already func(State) bool, operation func() error) error {
	for first := true; ; first = false {
		state, err := m.State()
		if err != nil || already(state) {
			return err
		}
		if err := m.do(what, operation); err == nil || !first {
			return err
		}
	}
}

func (m *Machine) do(what string, operation func() error) error {
	if err := operation(); err != nil {
		return fmt.Errorf("%s domain %s: %w", what, m.name, err)
	}
	return nil
}
