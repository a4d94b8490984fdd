package sim

import (
	"encoding/json"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Identity is a fingerprint of the world's state: its hosts and what runs on them, the objects in
// the API server and what each cache lacks of them, the queues and reconciles of each process,
// links, and faults. Worlds in the same state have the same fingerprint, whatever the times and
// the order of the events that led there: it omits times, resource versions and UIDs, which count
// writes.
//
// It covers requests under way, but nothing else that a controller or a BMC remembers. Computing
// it takes about as long as a short schedule.
func (b *Backend) Identity() uint64 {
	h := fnv.New64a()
	for _, host := range b.hosts {
		host.identify(h)
		bmc := b.bmcs[host.name]
		fmt.Fprintf(h, "bmc %d waiting\n", len(bmc.Pending()))
		for _, rule := range bmc.Rules() {
			fmt.Fprintf(h, "rule %s %v\n", rule.Name, plain(rule))
		}
	}
	if b.storage != nil {
		b.storage.Identify(h)
		fmt.Fprintf(h, "storage %v\n", b.storage.troubles)
	}
	if b.texts == nil {
		b.texts = make(map[client.Object]string)
	}
	of := objectsIn{h, b.knownUIDs(), b.texts}
	for _, kind := range b.sim.server.Kinds() {
		for _, obj := range b.store.List(kind, "") {
			of.identify(obj)
		}
	}
	fmt.Fprintf(h, "api %t %t %t %t %d\n", b.api.away, b.api.silent, b.api.storeless, b.api.inquorate, len(b.api.failures))
	for _, f := range b.api.failures {
		fmt.Fprintf(h, "failure %+v %d\n", f.FailAPIOp, f.left)
	}
	fmt.Fprintf(h, "cuts %v\n", b.w.network.cuts)
	for _, p := range b.processes {
		p.identify(of)
	}
	return h.Sum64()
}

func (h *host) identify(to hash.Hash) {
	k := h.kubelet
	h.Identify(to)
	fmt.Fprintf(to, "kubelet %t %t %t %t %t %s\n", k.alive, k.stopped, k.uid != "", k.missed, k.syncing, k.offset)
	for _, c := range k.containers {
		fmt.Fprintf(to, "container %s %t %t\n", c.key, c.running, c.change != nil)
		if c.volume {
			fmt.Fprintf(to, "volume %t %t %t %t\n", c.writes != nil, k.reconstructed, k.tidying, k.drops)
		}
	}
}

func (p *process) identify(to objectsIn) {
	fmt.Fprintf(to, "process %s %t %t %t %s %d %t\n", p.actor.name, p.up, p.election.stands(), p.still.paused, p.offset, len(p.still.held), p.crash.Armed())
	if p.uplink.limiter.Every > 0 {
		fmt.Fprintf(to, "limit %s\n", max(0, p.uplink.limiter.next-p.w.now))
	}
	for _, s := range p.cache.streams {
		if p.cache.view == nil {
			break // it has not started
		}
		fmt.Fprintf(to, "stream %s %t\n", s.kind.Kind, s.frozen)
		for _, change := range p.cache.view.Behind(s.kind) {
			fmt.Fprintf(to, "lacks %s\n", change.Key)
			to.identify(change.New)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.queue.entries), func(a, b ticket) int { return strings.Compare(a.String(), b.String()) }) {
		e := p.queue.entries[k]
		fmt.Fprintf(to, "request %s %t %t %t %d %d %d\n", k, e.queued, e.timer != nil, e.locked, e.priority, e.failures, slices.Index(p.queue.ready, e))
	}
	var flights []string // they go on side by side, whichever began first
	for _, f := range p.flights.aloft {
		text := "flight"
		if f.entry != nil {
			text += fmt.Sprintf(" of %s", f.entry.request)
		}
		for _, c := range f.sent {
			text += fmt.Sprintf(" has sent %v", c.deed)
		}
		flights = append(flights, text)
	}
	slices.Sort(flights)
	for _, text := range flights {
		fmt.Fprintln(to, text)
	}
}

var (
	version = regexp.MustCompile(`"resourceVersion":"[0-9]+",?`)
	moment  = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z`)
	uid     = regexp.MustCompile(`00000000-0000-4000-8000-[0-9a-f]{12}`)
)

// knownUIDs maps each UID to its object.
func (b *Backend) knownUIDs() map[string]string {
	known := make(map[string]string)
	for _, kind := range b.sim.server.Kinds() {
		for _, obj := range b.store.List(kind, "") {
			known[string(obj.GetUID())] = kind.Kind + "/" + obj.GetName()
		}
	}
	return known
}

// objectsIn writes objects into an identity. Known has the names of UIDs, and texts what an object
// says whatever those are: stored objects never change.
type objectsIn struct {
	hash.Hash
	known map[string]string
	texts map[client.Object]string
}

func (to objectsIn) identify(obj client.Object) {
	if obj == nil {
		fmt.Fprintln(to, "gone")
		return
	}
	text, ok := to.texts[obj]
	if !ok {
		text = moment.ReplaceAllString(version.ReplaceAllString(plain(obj), ""), "then")
		to.texts[obj] = text
	}
	text = uid.ReplaceAllStringFunc(text, func(id string) string { return to.known[id] })
	fmt.Fprintf(to, "%T %s\n", obj, text)
}

// plain renders a value as JSON, which has the contents of pointers and not their addresses.
func plain(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("the state of a world is made of plain data: %v", err)) // unreachable: what the API server stores marshals
	}
	return string(data)
}
