package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Checker is whoever reads a file, as the row of an operation sees it: a row checks by it what
// the types don't show. It knows who takes part in the story, what the steps before have done,
// and the words of the world, and reports what is wrong at the path of a field.
type Checker interface {
	// Spec is the story that the operation is a part of.
	Spec() *Spec
	// Bad reports something about a field, unless the file doesn't have it or worse was said of it.
	Bad(path, format string, args ...any)
	// OneOf reports a name that is none of the valid ones, and returns whether it is one.
	OneOf(path, what, name string, valid []string) bool

	// Host, Domain and Controller report a host, a failure domain, and a process that
	// don't take part.
	Host(path, name string)
	Domain(path, name string)
	Controller(path, process string)
	// Controllers returns the processes that take part, nil if unknown.
	Controllers() []string
	// About says of the controller of a process whether it is a stand-in, and which kinds are in
	// its cache; none if unknown.
	About(process string) (standIn bool, cached []string)

	// Kinds are the kinds that the API server has.
	Kinds() Kinds
	// Selection reports objects that are not there, and returns the kind of those that are.
	// Their kind must have something.
	Selection(path string, s Selection, has func(*Kind) bool) (kind string)
	// Object reports a name of an object, KIND/NAME, whose kind doesn't have something, or which
	// can't be there, and Reset a command that no BMC knows.
	Object(path, object string, has func(*Kind) bool) (kind string)
	Reset(path, name string)
	// Content reports a merge patch that doesn't fit a kind.
	Content(path, kind string, merge json.RawMessage)

	// Second and NoSecond note that a second process of a controller starts and ends.
	Second(path, controller string)
	NoSecond(controller string)
	// Fault and NoFault note that a BMC misbehaves and behaves again.
	Fault(path string, f *FaultOp)
	NoFault(path, name string)
	// Healed notes that everything is withdrawn that can be.
	Healed()
}

func checkHost(c Checker, path string, op *HostOp) { c.Host(path+".host", op.Host) }

// AtLeast reports a time that is too short for anything to happen in it.
func AtLeast(c Checker, path string, d Duration, least time.Duration) {
	if d != 0 && time.Duration(d) < least {
		c.Bad(path, "%s is too short: use at least %s", time.Duration(d), least)
	}
}

// checkLinks checks that there are such links.
func checkLinks(c Checker, path string, l *LinkOp) {
	given := 0
	for _, is := range [...]bool{l.Host != "", l.Domain != "", l.From != "" || l.To != "", len(l.Between) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		c.Bad(path, "does not say which links: give it host, domain, from and to, or between")
		return
	case l.Host != "":
		c.Host(path+".host", l.Host)
		return
	case l.Domain != "":
		c.Domain(path+".domain", l.Domain)
		return
	case len(l.Between) > 0:
		for i, end := range l.Between {
			checkEnd(c, fmt.Sprintf("%s.between[%d]", path, i), end)
		}
		if len(l.Between) != 2 {
			c.Bad(path+".between", "a link has two ends, but %d are given", len(l.Between))
			return
		}
	case l.From == "" || l.To == "":
		c.Bad(path, "a direction goes from one end to another: give it from and to")
		return
	default:
		checkEnd(c, path+".from", l.From)
		checkEnd(c, path+".to", l.To)
	}
	one, other := l.ends()[0], l.ends()[1]
	if kinds := linked[kindOfEnd(one)]; kinds != nil && kindOfEnd(other) != "" && (one == other || !slices.Contains(kinds, kindOfEnd(other))) {
		c.Bad(path, "there is no link between %s and %s: nothing is sent there", one, other)
	}
}

// checkEnd checks one end of a link.
func checkEnd(c Checker, path, end string) {
	kind, name, named := strings.Cut(end, "/")
	switch {
	case end == API:
	case end == Storage:
		checkVolume(c, path)
	case !named || linked[kind] == nil || kind == API || kind == Storage:
		c.Bad(path, "%s is not an end of a link: write api, storage, host/NAME, controller/NAME or bmc/NAME", phrase.Quote(end))
	case kind != "controller":
		c.Host(path, name)
	case c.Controllers() != nil:
		c.OneOf(path, "controller", name, c.Controllers())
	}
}

// leastRate is the slowest link over which an exchange with the API server ends before its client
// gives up.
const leastRate = 1000

func checkImpair(c Checker, path string, i *ImpairOp) {
	checkLinks(c, path, i.Link())
	switch {
	case i.Loss < 0 || i.Loss >= 1:
		c.Bad(path+".loss", "%v: use the share of frames that is lost, such as 0.1; where all are, use cut", i.Loss)
	case i.Rate != 0 && i.Rate < leastRate:
		c.Bad(path+".rate", "%d: use at least %d bytes a second, or cut", i.Rate, leastRate)
	case i.How() == "":
		c.Bad(path, "does not say how poor the link is: give it delay, loss or rate")
	}
}

func checkStopFeeding(c Checker, path string, op *HostOp) {
	checkHost(c, path, op)
	for _, host := range c.Spec().Topology.Hosts {
		if host.Name == op.Host && host.Watchdog == 0 {
			c.Bad(path+".host", "the host %s has no watchdog", op.Host)
		}
	}
}

// checkStopAgent wants an agent on the host.
func checkStopAgent(c Checker, path string, op *HostOp) {
	checkHost(c, path, op)
	on := func(process string) bool { return strings.HasPrefix(process, op.Host+".") }
	if all := c.Controllers(); all != nil && !slices.ContainsFunc(all, on) {
		c.Bad(path+".host", "no controller of the story runs on every host: there is no agent to stop")
	}
}

// maxDrift is more than a clock that is worth the name can be wrong by.
const maxDrift = Duration(500 * time.Millisecond)

func checkClock(c Checker, path string, op *ClockOp) {
	c.Host(path+".host", op.Host)
	c.Controller(path+".controller", op.Controller)
	if (op.Host == "") == (op.Controller == "") {
		c.Bad(path, "does not say whose clock: give it either host or controller")
	}
	if op.Ahead > 0 && op.Behind > 0 {
		c.Bad(path+".behind", "a clock is ahead or behind, not both")
	}
	switch {
	case op.Gains > 0 && op.Loses > 0:
		c.Bad(path+".loses", "a clock gains or loses, not both")
	case op.Drift() != 0 && op.Host == "":
		c.Bad(path, "only a host's clock can run at a different rate")
	case op.Gains > maxDrift || op.Loses > maxDrift:
		c.Bad(path, "a clock can gain or lose at most half a second each second")
	}
	if standIn, _ := c.About(op.Controller); standIn {
		c.Bad(path+".controller", "%s is a stand-in for something that compares no clocks", op.Controller)
	}
}

// restartTime is the least time in which a controller starts again.
const restartTime = 500 * time.Millisecond

func checkCrash(c Checker, path string, op *CrashOp) {
	if op.Host != "" {
		c.Host(path+".host", op.Host)
	}
	c.Controller(path+".controller", op.Process())
	CheckDeed(c, path+".deed", op.Deed)
	if op.Occurrence < 1 {
		c.Bad(path+".occurrence", "%d: occurrences are counted from 1", op.Occurrence)
	}
	AtLeast(c, path+".restartAfter", op.RestartAfter, restartTime)
	c.OneOf(path+".point", "crash point", string(op.Point), CrashPoints)
	switch {
	case op.LateBy > 0 && !op.AtOnce() && op.Point == CrashAfter:
		c.Bad(path+".lateBy", "after the effect, nothing is in flight any more: use point: before")
	case op.Each && op.Deed != "" || op.Each && op.Occurrence > 0:
		c.Bad(path+".each", "already covers every effect: leave this out, or deed and occurrence")
	case op.AtOnce() && op.Point == CrashBefore:
		c.Bad(path+".point", "does not say what it crashes before: add deed or each")
	}
}

// CheckDeed checks the name of something that a controller does to the world: nothing else has one.
func CheckDeed(c Checker, path, deed string) {
	verb, object, _ := strings.Cut(deed, " ")
	if verb == bmcDeed {
		reset, host, _ := strings.Cut(object, " ")
		c.Reset(path, reset)
		c.Host(path, host)
		return
	}
	verbs := append(slices.Sorted(maps.Keys(deedVerbs)), bmcDeed)
	if c.OneOf(path, "deed", verb, verbs) {
		c.Object(path, object, IsWritten)
	}
}

func checkCache(c Checker, path string, op *CacheOp) {
	c.Controller(path+".controller", op.Controller)
	if _, kinds := c.About(op.Controller); len(kinds) > 0 {
		c.OneOf(path+".kind", "kind in the cache of "+op.Controller, op.Kind, kinds)
	} else if op.Kind == "" {
		c.Bad(path+".kind", "is empty: name a kind, such as BareMetalHost")
	}
}

func checkAnnotation(c Checker, path string, op *AnnotateOp) {
	c.Selection(path, op.Selection(), IsAnnotated)
	if !QualifiedName.MatchString(op.Key) {
		c.Bad(path+".key", "%s is not an annotation that Kubernetes accepts", phrase.Quote(op.Key))
	}
}

func checkNoAnnotation(c Checker, path string, op *AnnotateOp) {
	checkAnnotation(c, path, op)
	c.Bad(path+".value", "an annotation is removed whatever its value: leave it out")
}

func checkPatch(c Checker, path string, op *PatchOp) {
	kind := c.Selection(path, op.Selection(), IsChanged)
	object, status, err := op.Split()
	switch {
	case err != nil:
		c.Bad(path+".merge", "%s where the fields of an object are expected", op.Merge)
	case object == nil && status == nil:
		c.Bad(path+".merge", "changes nothing")
	case kind != "" && !op.Foreign:
		c.Content(path+".merge", kind, op.Merge)
		var of struct{ Spec map[string]json.RawMessage }
		if json.Unmarshal(op.Merge, &of) != nil {
			return // which Content has reported
		}
		fixed := c.Kinds().Get(kind).Fixed
		for _, field := range slices.Sorted(maps.Keys(fixed)) {
			if _, changed := of.Spec[field]; changed && !c.Spec().movesBMCs() {
				c.Bad(path+".merge.spec."+field, "%s", fixed[field])
			}
		}
	}
}

// movesBMCs reports whether a step has a BMC answer at another address.
func (s *Spec) movesBMCs() bool {
	return slices.ContainsFunc(s.Steps, func(s Step) bool { return s.Do != nil && s.Do.MoveBMC != nil })
}

// checkMove wants a name that can stand in an address.
func checkMove(c Checker, path string, op *MoveOp) {
	c.Host(path+".host", op.Host)
	if to := op.Address(); !QualifiedName.MatchString(to) || strings.Contains(to, "/") {
		c.Bad(path+".to", "%s is no host name", phrase.Quote(to))
	}
}

// checkCreate checks that there is such an object, and that users make it.
func checkCreate(c Checker, path string, op *CreateOp) {
	kind := c.Selection(path, Selection{Object: op.Object}, IsMade)
	switch {
	case kind == "":
	case len(op.With) == 0 && (c.Kinds().Get(kind).Named == Freely || c.Kinds().Get(kind).Unmade):
		c.Bad(path, "the topology has no %s: give its content, in with", kind)
	case len(op.With) > 0:
		c.Content(path+".with", kind, op.With)
	}
	var given struct {
		Metadata struct {
			Namespace   string
			Annotations map[string]string
		}
	}
	if len(op.With) == 0 || json.Unmarshal(op.With, &given) != nil {
		return
	}
	if given.Metadata.Namespace != "" {
		c.Bad(path+".with.metadata.namespace", "all objects of a story are in one namespace: leave it out")
	}
	if kind != "Pod" {
		return
	}
	if name := given.Metadata.Annotations[volumeAnnotation]; name != "" && (c.Spec().Topology.Workload.Volume == nil || c.Spec().Topology.Workload.Volume.Name != name) {
		c.Bad(path+".with.metadata.annotations", "there is no volume %q: the only one is that of spec.topology.workload", name)
	}
}

// volumeAnnotation on a Pod names the volume that it has in the simulator.
const volumeAnnotation = "fencelab.dev/volume"

func checkFailAPI(c Checker, path string, op *FailAPIOp) {
	c.Controller(path+".controller", op.Controller)
	c.OneOf(path+".verb", "verb", op.Verb, APIVerbs)
	c.OneOf(path+".kind", "kind", op.Kind, c.Kinds().Names(AnyKind))
	switch {
	case !slices.Contains(APICodes, op.Code):
		c.Bad(path+".code", "%d: use one of %s", op.Code, strings.Trim(fmt.Sprint(APICodes), "[]"))
	case op.Code == http.StatusNotFound && !c.Kinds().Get(op.Kind).Custom:
		c.Bad(path+".code", "only custom resources can be missing entirely: give kind one of %s", strings.Join(c.Kinds().Names(IsCustom), ", "))
	}
	if op.Times < 1 {
		c.Bad(path+".times", "%d: use at least 1, or leave it out", op.Times)
	}
}

// checkVolume reports a story without a volume.
func checkVolume(c Checker, path string) {
	if c.Spec().Topology.Workload.Volume == nil {
		c.Bad(path, "there is no storage: give spec.topology.workload a volume")
	}
}

func checkStorage(c Checker, path string, op *StorageOp) {
	checkVolume(c, path)
	c.Host(path+".host", op.Host)
	c.OneOf(path+".does", "deed of the storage", string(op.Does), StorageDeeds)
	if op.Refuses && (op.Does == StorageMount || op.Does == StorageUnmount) {
		c.Bad(path+".refuses", "a kubelet tries a mount again, whatever is wrong with it: leave this out")
	}
}

func checkOnVolume(c Checker, path string, op *HostOp) {
	checkVolume(c, path)
	checkHost(c, path, op)
}

func checkIronic(c Checker, path string, _ *struct{}) {
	if c.Spec().Topology.Ironic == nil {
		c.Bad(path, "there is no Ironic: add spec.topology.ironic")
	}
}
