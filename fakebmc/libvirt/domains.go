//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"
)

const (
	// retryInterval is how often a lost connection is looked for and made anew.
	retryInterval = time.Second
	// keepAlive is how many seconds pass between signs of life of a libvirt, and
	// keepAliveCount how many of them may be missed.
	keepAlive, keepAliveCount = 5, 3
)

// Domains are those of a libvirt, and the connection to it. A connection that is lost
// is made anew.
type Domains struct {
	options Options
	remote  bool // on another machine
	line    *line[connection]
	ear     *line[*listener] // a connection for events only
	events  *events
	deaf    chan struct{}   // holds a token when events may have been missed
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	done    chan struct{} // closed when watch has returned

	mu      sync.Mutex
	domains map[string]*Domain // by UUID
}

// eventLoop runs what all connections of the process share.
var eventLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("start libvirt's event loop: %w", err)
	}
	go func() {
		for {
			_ = libvirt.EventRunDefaultImpl() // a lost connection shows where it is used
		}
	}()
	return nil
})

// Open connects to a libvirt and returns the domains that it has now, by name. When ctx
// ends, nobody waits for the libvirt any longer; Close is needed all the same.
func Open(ctx context.Context, o Options) (l *Domains, domains []*Domain, err error) {
	u, err := url.Parse(o.URI)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to libvirt: %w", err)
	}
	if err := eventLoop(); err != nil {
		return nil, nil, err
	}
	l = &Domains{options: o, remote: u.Host != "", events: newEvents(), deaf: make(chan struct{}, 1), done: make(chan struct{}), domains: map[string]*Domain{}}
	l.line, l.ear = newLine(l.dial), newLine(l.listen)
	l.ctx, l.cancel = context.WithCancel(ctx)
	if err = l.hear(); err == nil {
		_, err = l.refresh()
	}
	for _, name := range o.Names {
		if err == nil && !slices.ContainsFunc(l.all(), func(d *Domain) bool { return d.name == name }) {
			err = fmt.Errorf("find domain %s: %s has none of that name", name, o.URI)
		}
	}
	if err != nil {
		l.disconnect(context.Background())
		return nil, nil, err
	}
	domains = l.all()
	go l.watch()
	return l, domains, nil
}

func (l *Domains) all() (all []*Domain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.domains {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Domain) int { return strings.Compare(a.name, b.name) })
	return all
}

// Close ejects what was inserted, deletes the images that were fetched and ends the
// connection, as far as the libvirt still answers. The domains stay as they are.
func (l *Domains) Close() error {
	l.cancel() // downloads, too
	<-l.done
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	for _, d := range l.all() {
		errs = append(errs, d.eject(ctx))
	}
	l.disconnect(ctx)
	return errors.Join(errs...)
}

func (l *Domains) disconnect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	l.cancel()
	l.ear.close(ctx)
	l.line.close(ctx)
}

// connection is one to a libvirt.
type connection struct{ *libvirt.Connect }

func (c connection) isAlive() bool {
	alive, err := c.IsAlive()
	return err == nil && alive
}

// close returns no error: the connection is gone in any case.
func (c connection) close() { _, _ = c.Close() }

func (l *Domains) dial() (none connection, err error) {
	conn, err := libvirt.NewConnect(l.options.URI)
	if err != nil {
		return none, fmt.Errorf("connect to libvirt at %s: %w; is it running, and may this user use it?", l.options.URI, legible(err))
	}
	// Drivers inside this process have no connection that could be lost.
	if err := conn.SetKeepAlive(keepAlive, keepAliveCount); err != nil && !errors.Is(err, libvirt.ERR_NO_SUPPORT) {
		_, _ = conn.Close() // the other error is the reason
		return none, fmt.Errorf("keep the connection to libvirt at %s alive: %w", l.options.URI, legible(err))
	}
	return connection{conn}, nil
}

// listener is a connection that delivers events.
type listener struct {
	connection
	callback int
}

func (e *listener) close() {
	_ = e.DomainEventDeregister(e.callback) // or it would hold the connection
	e.connection.close()
}

func (l *Domains) listen() (*listener, error) {
	conn, err := l.dial()
	if err != nil {
		return nil, err
	}
	callback, err := conn.DomainEventLifecycleRegister(nil, l.events.put)
	if err != nil {
		conn.close()
		return nil, fmt.Errorf("listen to the events of libvirt at %s: %w", l.options.URI, legible(err))
	}
	select {
	case l.deaf <- struct{}{}: // until now
	default:
	}
	return &listener{conn, callback}, nil
}

// hear has events delivered from now on, if they are not.
func (l *Domains) hear() error {
	ctx, cancel := context.WithTimeout(l.ctx, readLimit)
	defer cancel()
	_, err := call(ctx, l.ear, func(*listener) (struct{}, error) { return struct{}{}, nil }, func() {})
	return err
}

// legible leaves of libvirt's errors what they say to people.
func legible(err error) error {
	if e := new(libvirt.Error); errors.As(err, e) {
		return errors.New(e.Message)
	}
	return err
}

// settling is how long the domains are polled after a connection, beside libvirt's events. A daemon
// that has just started may still be connecting to its QEMUs, and sends no event for one that dies
// in that time.
const settling = time.Minute

// watch hands events to the domains, one after the other, and makes a lost
// connection anew.
func (l *Domains) watch() {
	defer close(l.done)
	look := time.NewTicker(retryInterval)
	defer look.Stop()
	<-l.deaf // until Open
	connected := time.Now()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.events.wake:
			var changed []*Domain
			for _, e := range l.events.take() {
				if d := l.handle(e); d != nil && !slices.Contains(changed, d) {
					changed = append(changed, d)
				}
			}
			// The event of a guest's end can come after that of its process's end.
			for _, d := range changed {
				d.look()
			}
		case <-look.C:
			_ = l.hear() // or the next time
			if time.Since(connected) < settling {
				for _, d := range l.all() {
					d.look()
				}
			}
		case <-l.deaf:
			connected = time.Now()
			l.change()
			for _, d := range l.all() {
				d.forget()
				d.look()
			}
		}
	}
}

func (l *Domains) handle(e event) *Domain {
	switch e.kind {
	case libvirt.DOMAIN_EVENT_DEFINED, libvirt.DOMAIN_EVENT_UNDEFINED, libvirt.DOMAIN_EVENT_STARTED, libvirt.DOMAIN_EVENT_STOPPED:
		l.change()
	}
	l.mu.Lock()
	d := l.domains[e.uuid]
	l.mu.Unlock()
	if d != nil {
		d.handle(e.kind)
	}
	return d
}

// change reports which domains came and went.
func (l *Domains) change() {
	changes, err := l.refresh()
	if err != nil || l.options.Change == nil {
		return // the next event or connection finds the rest
	}
	for _, c := range changes {
		l.options.Change(c.domain, c.gone)
	}
}

type change struct {
	domain *Domain
	gone   bool
}

// refresh takes in the domains that there are now. One that has another name is
// another one.
func (l *Domains) refresh() (changes []change, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, readLimit)
	defer cancel()
	now, err := call(ctx, l.line, l.list, func() {})
	if err != nil {
		return nil, fmt.Errorf("list the domains of %s: %w", l.options.URI, legible(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uuid, d := range l.domains {
		if now[uuid] != d.name {
			delete(l.domains, uuid)
			changes = append(changes, change{d, true})
		}
	}
	for uuid, name := range now {
		if l.domains[uuid] == nil {
			d := &Domain{all: l, name: name, uuid: uuid, bay: newLock(), power: newLock(), boot: noOverride}
			l.domains[uuid] = d
			changes = append(changes, change{d, false})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return strings.Compare(a.domain.name, b.domain.name) })
	return changes, nil
}

// list returns the names of the domains, by UUID.
func (l *Domains) list(conn connection) (map[string]string, error) {
	found, err := conn.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	now := map[string]string{}
	for i := range found {
		name, nameErr := found[i].GetName()
		uuid, uuidErr := found[i].GetUUIDString()
		if len(l.options.Names) == 0 || slices.Contains(l.options.Names, name) {
			now[uuid] = name
		}
		_ = found[i].Free() // it ends with the connection at the latest
		err = errors.Join(err, nameErr, uuidErr)
	}
	return now, err
}

// event is one of a domain's life.
type event struct {
	uuid string
	kind libvirt.DomainEventType
}

// events is a queue without a bound: libvirt's event loop must never wait, and no
// event may be lost.
type events struct {
	mu    sync.Mutex
	items []event
	wake  chan struct{} // holds a token while there are items
}

func newEvents() *events { return &events{wake: make(chan struct{}, 1)} }

// put is called by libvirt's event loop.
func (q *events) put(_ *libvirt.Connect, d *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
	uuid, err := d.GetUUIDString()
	if err != nil {
		return // of an object in memory it can't fail
	}
	q.mu.Lock()
	q.items = append(q.items, event{uuid, e.Event})
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *events) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}
