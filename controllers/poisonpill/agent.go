package poisonpill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// Boot is the boot that the agent runs in.
type Boot interface {
	// ID is the boot ID that the boot's Node reports.
	ID() string
	// Uptime is how long the boot has lasted, by a clock that is never set and that runs on while
	// the host stands still.
	Uptime() time.Duration
	// Load returns the data saved last in this boot, or nil.
	Load() ([]byte, error)
	Save([]byte) error
}

// Watchdog is the host's watchdog.
type Watchdog interface {
	// Feed restarts the watchdog's timeout.
	Feed(context.Context) error
	// Timeout is the watchdog's timeout; 0 without a watchdog.
	Timeout() time.Duration
}

// Peers are the agents on the other hosts.
type Peers interface {
	// Ask asks all of them at once and returns the answers that arrive within a time, by the names
	// of their Nodes.
	Ask(ctx context.Context, peers map[string][]string, request []byte, within time.Duration) map[string][]byte
}

// Agent is the agent of one host. All fields but those below must be set.
type Agent struct {
	// API reads from the API server and writes to it, and gives each request up after a
	// third of Settings.RequestTimeout.
	API client.Client
	// Clock gives the times that are written for people.
	Clock    clock.PassiveClock
	Boot     Boot
	Watchdog Watchdog
	Peers    Peers
	// Reboot makes the kernel reboot at once.
	Reboot func(context.Context) error
	// Warn warns the users of an object; may be nil.
	Warn func(about client.Object, reason, message string)
	// Node is the name of the host's Node.
	Node     string
	Settings Settings
	Decide   func(State) Action

	loaded bool
	m      memory
	// warned holds the Machines whose users were warned that no agent can help.
	warned   map[types.UID]bool
	readings readings
	// mutex guards published, the part of m that Answer may read. Only Step uses m itself.
	mutex     sync.Mutex
	published published
}

// published is the part of an agent's memory that its answers may read. Nothing in it changes.
type published struct {
	looked bool
	known  map[string]known
}

// again is when the agent looks again after a change of its own.
const again = 200 * time.Millisecond

// Step feeds the watchdog, if it may, and then does the one thing that is due: it looks at the API
// server, or asks a set of peers.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	if err := a.load(); err != nil {
		return a.Settings.Interval.Duration, err
	}
	var problems []error
	problem := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	problem(a.feed(ctx))
	if a.m.Round != nil {
		a.ask(ctx)
	} else if a.Boot.Uptime() >= a.m.Next {
		problem(a.look(ctx))
	}
	problem(a.feed(ctx))
	problem(a.save())
	return a.next(), errors.Join(problems...)
}

// next returns when the next Step is due: a watchdog is fed three times within its timeout.
func (a *Agent) next() time.Duration {
	if a.m.Round != nil {
		return 0
	}
	next := a.m.Next - a.Boot.Uptime()
	if dog := a.Watchdog.Timeout(); dog > 0 {
		next = min(next, dog/3)
	}
	return next
}

// load loads the memory of an earlier agent of this boot.
func (a *Agent) load() error {
	if a.loaded {
		return nil
	}
	data, err := a.Boot.Load()
	if err == nil && data != nil {
		err = json.Unmarshal(data, &a.m)
	}
	if err != nil {
		return fmt.Errorf("load what was known earlier in this boot: %w", err)
	}
	a.loaded = true
	a.publish()
	return nil
}

func (a *Agent) save() error {
	data, err := json.Marshal(&a.m)
	if err == nil {
		err = a.Boot.Save(data)
	}
	if err != nil {
		return fmt.Errorf("keep what is known for the rest of this boot: %w", err)
	}
	a.publish()
	return nil
}

// publish shares with Answer what it may know.
func (a *Agent) publish() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.published = published{a.m.Looked, a.m.Known}
}

// Published implements controllers.Publisher.
func (a *Agent) Published() any {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.published
}

// feed feeds the watchdog, leaves it alone, or reboots.
func (a *Agent) feed(ctx context.Context) error {
	now, dog := a.Boot.Uptime(), a.Watchdog.Timeout()
	action := a.Decide(State{
		About: OfWatchdog, Watched: dog > 0, Announced: len(a.m.Promises) > 0,
		Fresh: a.m.fresh(now), Condemned: a.m.Condemned || a.m.Known[a.Node].Boot == a.Boot.ID(),
		Overdue: a.m.Starved > 0 && now-a.m.Starved > 2*dog,
	})
	switch {
	case action == Feed && dog > 0:
		a.m.Starved = 0
		if err := a.Watchdog.Feed(ctx); err != nil {
			return fmt.Errorf("feed the watchdog: %w", err)
		}
	case action == Starve && a.m.Starved == 0:
		a.m.Starved = now
	case action == Reboot:
		if err := a.Reboot(ctx); err != nil {
			return fmt.Errorf("reboot: %w", err)
		}
	}
	return nil
}

// look looks at the API server, and acts on the findings.
func (a *Agent) look(ctx context.Context) error {
	began := a.Boot.Uptime()
	a.m.Next = began + a.Settings.Interval.Duration
	s, err := look(ctx, a.API, &a.readings)
	state := State{About: OfLook, Reached: err == nil, Failing: a.m.Failures+1 >= a.Settings.Failures}
	if err == nil {
		a.m.learn(s)
		state.Fenced, state.Marked = s.fenced(a.Node, a.Boot.ID()), s.unanswered(a.Node, a.Boot.ID())
	} else {
		a.m.Failures++
	}
	switch a.Decide(state) {
	case Ask:
		if len(a.m.Promises) > 0 {
			a.m.Rounds++
			a.m.Round = begin(a.Boot.Uptime(), a.Node, a.m.Rounds, a.m.electorate())
			a.vote()
		}
	case Die:
		a.m.Condemned = true
	case RequestFence:
		a.m.Next = began + again
		return a.request(ctx, s, a.Node, a.Boot.ID())
	case LiveOn:
		a.m.vouch(began)
		if s != nil {
			return a.participate(ctx, s)
		}
	}
	return err
}

// participate does an agent's work for other hosts, while its own host is well.
func (a *Agent) participate(ctx context.Context, s *survey) error {
	a.m.meet(s, a.Node, a.Settings.Failures)
	if err := a.announce(ctx, s); err != nil {
		return err
	}
	return a.survive(ctx, s)
}

// announce writes on the Node what others may count on. The agent goes by a new announcement only
// once it is known to be written; until then it keeps to both.
func (a *Agent) announce(ctx context.Context, s *survey) error {
	node := s.nodes[a.Node]
	if node == nil || node.Status.NodeInfo.BootID != a.Boot.ID() {
		return nil // its kubelet has not registered yet
	}
	peers := slices.Sorted(maps.Keys(a.m.Peers))
	wanted := Announcement{Boot: a.Boot.ID(), Peers: peers, Terms: a.Settings.terms(len(peers), a.Watchdog.Timeout()), Knows: s.knows()}
	value := wanted.String()
	promised := slices.ContainsFunc(a.m.Promises, func(p Announcement) bool { return p.promises(wanted) })
	if promised && node.Annotations[AgentAnnotation] == value {
		return nil
	}
	if err := a.feed(ctx); err != nil {
		// others may not count on a watchdog that can't be fed
		return err
	}
	if !promised {
		a.m.Promises = append(a.m.Promises, wanted)
	}
	if err := a.save(); err != nil {
		// a promise must be saved before it is announced
		return err
	}
	if err := a.API.Patch(ctx, node.DeepCopy(), api.SetAnnotation(node, AgentAnnotation, value)); err != nil {
		a.m.Next = min(a.m.Next, a.Boot.Uptime()+a.Settings.Interval.Duration/3)
		return quiet(fmt.Errorf("announce on Node %s: %w", a.Node, err))
	}
	a.m.Promises = []Announcement{wanted}
	a.m.Next = min(a.m.Next, a.Boot.Uptime()+again)
	return a.feed(ctx)
}

// ask asks the next set of peers, and votes.
func (a *Agent) ask(ctx context.Context) {
	r, asked := a.m.Round, map[string][]string{}
	for _, peer := range r.next() {
		asked[peer] = a.m.Peers[peer]
	}
	said := a.Peers.Ask(ctx, asked, question{a.Node, a.Boot.ID()}.encode(), a.Settings.PeerTimeout.Duration)
	for peer := range asked { // order does not matter: into a map
		r.Replies[peer] = parseReply(said[peer])
	}
	a.vote()
}

// vote acts on the replies so far.
func (a *Agent) vote() {
	r := a.m.Round
	state := r.state(a.m.Promises)
	state.Fresh = a.m.fresh(a.Boot.Uptime())
	switch a.Decide(state) {
	case LiveOn:
		a.m.vouch(r.Began)
	case Wait:
		a.m.Round = nil
	case Die:
		a.m.Condemned, a.m.Round = true, nil
	}
}

// bootOf returns the boot that a Node reports.
func bootOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Status.NodeInfo.BootID
}

// Retire announces that the others may no longer count on this boot's being reset: its agent is
// stopped in an orderly way, which disarms the watchdog. It fails when the announcement is not
// known to be written, or when the boot has to end.
func (a *Agent) Retire(ctx context.Context) error {
	if err := a.load(); err != nil || len(a.m.Promises) == 0 && !a.m.Condemned {
		return err
	}
	s, err := look(ctx, a.API, &a.readings)
	if err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	if a.mustEnd(s) { // what it announces comes true
		return errMustEnd
	}
	if node := s.nodes[a.Node]; node != nil && node.Annotations[AgentAnnotation] != "" {
		if err := a.API.Patch(ctx, node.DeepCopy(), api.RemoveAnnotations(node, AgentAnnotation)); err != nil {
			return fmt.Errorf("withdraw what Node %s announces: %w", a.Node, err)
		}
	}
	// Whoever releases the Node sees that it has changed. But the boot may have been fenced
	// before.
	if s, err = look(ctx, a.API, &a.readings); err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	if a.mustEnd(s) {
		return errMustEnd
	}
	a.m.Promises = nil
	return a.save()
}

var errMustEnd = errors.New("retire: the host has to be reset")

// mustEnd reports whether this boot has to end.
func (a *Agent) mustEnd(s *survey) bool {
	return a.m.Condemned || s.fenced(a.Node, a.Boot.ID()) || s.unanswered(a.Node, a.Boot.ID())
}
