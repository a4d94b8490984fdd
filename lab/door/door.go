// Package door is the one path to the API server of all but a lab's observers. A scenario shuts it,
// and holds back or ends what passes; what anybody met at it is in the record.
package door

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Door is the path to the API server that a scenario can cut. Controllers, agents and kubelets take
// it, and so do kube-controller-manager and kube-scheduler if the lab has started them; the lab's
// observers bypass it.
type Door struct {
	stream *record.Stream
	read   func(*http.Request, []byte) gate.Request

	mu sync.Mutex
	// away makes every request fail; silent makes requests hang then.
	away, silent bool
	// storeless says that nothing can be written.
	storeless bool
	watches   map[*watched]bool
	// proxies stand for the API server before other processes: while it is away their addresses
	// refuse connections.
	proxies map[*gate.Proxy]bool
	// wires do the same for clients with certificates of their own.
	wires []*gate.Wire
	// frozen holds the watches that pass no events, and expired those that can't be resumed.
	frozen, expired map[Watching]bool
	// changed is closed when any of this has changed.
	changed chan struct{}
}

// Watching identifies a watch: who watches, and what.
type Watching struct{ Actor, Kind string }

// New makes a door that is open. read parses requests.
func New(s *record.Stream, read func(*http.Request, []byte) gate.Request) *Door {
	return &Door{
		stream: s, read: read, watches: make(map[*watched]bool), proxies: make(map[*gate.Proxy]bool), frozen: make(map[Watching]bool), expired: make(map[Watching]bool),
		changed: make(chan struct{}),
	}
}

// change changes the door, and lets whoever waits at it look again.
func (d *Door) change(how func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how()
	close(d.changed)
	d.changed = make(chan struct{})
}

// Shut takes the API server away. Watches end with it, but where everything only hangs. Each that
// ends is noted: of what other processes ask then, nothing comes as far as the door.
func (d *Door) Shut(silent bool) {
	var ended []Watching
	d.change(func() {
		d.away, d.silent = true, silent
		for _, w := range d.wires {
			if silent {
				w.Hang()
			} else {
				w.Refuse()
			}
		}
		if silent {
			return
		}
		for w := range d.watches { // order does not matter: they are sorted below
			if !w.over {
				w.over, ended = true, append(ended, w.Watching)
			}
		}
		for p := range d.proxies {
			p.Refuse()
		}
	})
	slices.SortFunc(ended, func(a, b Watching) int {
		return cmp.Or(strings.Compare(a.Actor, b.Actor), strings.Compare(a.Kind, b.Kind))
	})
	for _, w := range ended {
		d.fault(w, "outage", "watch", "")
	}
}

// fault notes what a client has met.
func (d *Door) fault(who Watching, value, verb, name string) {
	d.stream.Now(history.Event{Kind: history.APIFault, Actor: who.Actor, Object: who.Kind + "/" + name, Value: value, Note: verb})
}

// LoseStore lets nothing be written any more.
func (d *Door) LoseStore() { d.change(func() { d.storeless = true }) }

// Open brings the API server and its store back.
func (d *Door) Open() (err error) {
	d.change(func() {
		d.away, d.silent, d.storeless = false, false, false
		for p := range d.proxies {
			err = errors.Join(err, p.Accept())
		}
		for _, w := range d.wires {
			err = errors.Join(err, w.Accept())
		}
	})
	return err
}

// Connect makes a wire to the API server. Call it before there are clients that the server could
// be away for.
func (d *Door) Connect(api string) (*gate.Wire, error) {
	w, err := gate.Connect(api)
	if err == nil {
		d.wires = append(d.wires, w)
	}
	return w, err
}

// Serve makes a proxy through which another process goes to the API server, and through the door.
func (d *Door) Serve(config *rest.Config, through gate.Way, serving *tls.Config, only gate.Client) (*gate.Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p, err := gate.Serve(target, through(transport), serving, only)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.proxies[p] = true
	if d.away && !d.silent {
		p.Refuse()
	}
	return p, nil
}

// Close ends a proxy, and what it keeps open.
func (d *Door) Close(p *gate.Proxy) error {
	d.mu.Lock()
	delete(d.proxies, p)
	d.mu.Unlock()
	return p.Close()
}

// Takes reports whether something can be written.
func (d *Door) Takes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.away && !d.storeless
}

// Freeze holds back the events of a process's watches of a kind, until Thaw, or until a new process
// of that name begins.
func (d *Door) Freeze(w Watching) { d.change(func() { d.frozen[w] = true }) }

func (d *Door) Thaw(w Watching) { d.change(func() { delete(d.frozen, w) }) }

// ThawAll lets all watches pass the events that they have kept back.
func (d *Door) ThawAll() { d.change(func() { clear(d.frozen) }) }

// Begin forgets what was said of an earlier process of that name, whose watches ended with it.
func (d *Door) Begin(actor string) {
	d.change(func() {
		for _, of := range [...]map[Watching]bool{d.frozen, d.expired} {
			for w := range of {
				if w.Actor == actor {
					delete(of, w)
				}
			}
		}
	})
}

// Expire ends a watch so that it can't be resumed: the version to go on from is not kept any more.
// Events that were kept back are lost.
func (d *Door) Expire(which Watching) {
	d.change(func() {
		delete(d.frozen, which)
		d.expired[which] = true
		for w := range d.watches {
			w.over = w.over || w.Watching == which
		}
	})
}

// errAway is the error that clients get while the API server is away.
var errAway = errors.New("connect to the API server: connection refused")

// Through wraps a transport to the API server, so that its requests pass the door.
func (d *Door) Through(next http.RoundTripper) http.RoundTripper { return &doorway{d, next} }

type doorway struct {
	*Door
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. The user agent is whose request it is.
func (d *doorway) RoundTrip(request *http.Request) (*http.Response, error) {
	asked := d.read(request, nil)
	watches := asked.Watches != nil && asked.Verb == ""
	which := Watching{request.UserAgent(), asked.Kind}
	fault := func(value string) {
		if asked.Kind == "" {
			return
		}
		verb := asked.Verb
		if verb == "" {
			verb = "watch"
		}
		d.fault(which, value, verb, asked.Name)
	}
	d.mu.Lock()
	away, storeless := d.away, d.storeless
	expired := watches && d.expired[which] && request.URL.Query().Get("resourceVersion") != "" && request.URL.Query().Get("sendInitialEvents") == ""
	if expired {
		delete(d.expired, which)
	}
	d.mu.Unlock()
	switch {
	case away:
		fault("outage")
		return nil, d.refuse(request.Context())
	case storeless && request.Method != http.MethodGet:
		fault("etcd")
		return (&gate.Refusal{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}).Response(request), nil
	case expired:
		fault("410")
		return (&gate.Refusal{Code: http.StatusGone, Message: "the scenario made the watch expire"}).Response(request), nil
	}
	response, err := d.next.RoundTrip(request)
	if err == nil && watches && response.StatusCode == http.StatusOK {
		response.Body = d.watch(request.Context(), which, response.Body)
	}
	return response, err
}

// refuse returns when a client hears that the API server is away: at once, or when that is back and
// its connection isn't.
func (d *Door) refuse(ctx context.Context) error {
	for {
		d.mu.Lock()
		hangs, changed := d.away && d.silent, d.changed
		d.mu.Unlock()
		if !hangs {
			return errAway
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watched is the stream of a watch, which the door can keep back, or end.
type watched struct {
	Watching
	door   *Door
	ctx    context.Context // ends with Close, too
	end    context.CancelFunc
	source io.ReadCloser
	came   chan chunk
	rest   []byte
	err    error
	over   bool // guarded by door.mu
}

type chunk struct {
	data []byte
	err  error
}

func (d *Door) watch(ctx context.Context, which Watching, source io.ReadCloser) io.ReadCloser {
	w := &watched{Watching: which, door: d, source: source, came: make(chan chunk)}
	w.ctx, w.end = context.WithCancel(ctx)
	d.mu.Lock()
	d.watches[w] = true
	d.mu.Unlock()
	go w.follow()
	return w
}

// follow reads the source, so that its reader can hear of something else.
func (w *watched) follow() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := w.source.Read(buffer)
		select {
		case w.came <- chunk{append([]byte(nil), buffer[:n]...), err}:
		case <-w.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	for {
		w.door.mu.Lock()
		over, held, changed := w.over, w.door.frozen[w.Watching] || w.door.away, w.door.changed
		w.door.mu.Unlock()
		if over {
			return 0, io.EOF
		}
		if !held && len(w.rest) > 0 {
			n := copy(p, w.rest)
			w.rest = w.rest[n:]
			return n, nil
		}
		if !held && w.err != nil {
			return 0, w.err
		}
		came := w.came
		if held || len(w.rest) > 0 {
			came = nil
		}
		select {
		case c := <-came:
			w.rest, w.err = c.data, c.err
		case <-changed:
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.door.mu.Lock()
	delete(w.door.watches, w)
	w.door.mu.Unlock()
	w.end()
	return w.source.Close()
}
