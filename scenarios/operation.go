package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// This file is all that the engine knows of single operations, except that a run ends with
// Heal. A new one is a field of Op, a method of World and a row of operations; the compiler
// then asks both worlds for it, and tests ask the documents.

// Op is one thing that the scenario does to the world. Exactly one field is set.
type Op struct {
	// cut disconnects links of the network: all links of a host except its BMC's, or one
	// link, in one direction or both. What they connect keeps running.
	Cut *LinkOp `json:"cut,omitempty"`
	// impair makes links of the network poor: frames are late, lost or slow.
	Impair *ImpairOp `json:"impair,omitempty"`
	// restore reconnects what a cut with the same fields disconnected, or an impair made poor.
	Restore *LinkOp `json:"restore,omitempty"`
	// stopKubelet kills the kubelet of a host, until its next boot or until the faults are
	// withdrawn. What it started keeps running.
	StopKubelet *HostOp `json:"stopKubelet,omitempty"`
	// stopFeeding kills the process that feeds the host's watchdog.
	StopFeeding *HostOp `json:"stopFeeding,omitempty"`
	// stopAgent stops the agent that feeds the host's watchdog in order, as an update does, until
	// the next boot or until the faults are withdrawn. An agent disarms the watchdog, unless it has
	// reasons not to.
	StopAgent *HostOp `json:"stopAgent,omitempty"`
	// ignoreShutdown makes the host's operating system ignore graceful shutdown
	// requests, until its next boot or until the faults are withdrawn.
	IgnoreShutdown *HostOp `json:"ignoreShutdown,omitempty"`
	// pause stops the host's processors: no process makes progress, and none has ended.
	Pause *HostOp `json:"pause,omitempty"`
	// resume lets a paused host continue.
	Resume *HostOp `json:"resume,omitempty"`
	// hang stops all of a host's user space for the rest of the boot: nothing reacts, and nothing
	// feeds the watchdog.
	Hang *HostOp `json:"hang,omitempty"`
	// panic ends the kernel of a host, which stays on until it is reset.
	Panic *HostOp `json:"panic,omitempty"`
	// fillDisk leaves no room on the disk of a host, until the faults are withdrawn.
	FillDisk *HostOp `json:"fillDisk,omitempty"`
	// powerLoss switches the host off without anybody's command. Its BMC stays up.
	PowerLoss *HostOp `json:"powerLoss,omitempty"`
	// powerUp switches the host on without anybody's command.
	PowerUp *HostOp `json:"powerUp,omitempty"`
	// breakStorage makes something fail that the storage does, or a kubelet with a volume.
	BreakStorage *StorageOp `json:"breakStorage,omitempty"`
	// mendStorage ends what a breakStorage with the same fields began.
	MendStorage *StorageOp `json:"mendStorage,omitempty"`
	// fenceStorage has the storage take nothing more from a host, as its administrator would.
	FenceStorage *HostOp `json:"fenceStorage,omitempty"`
	// unfenceStorage lets a host in again that fenceStorage keeps out.
	UnfenceStorage *HostOp `json:"unfenceStorage,omitempty"`
	// dropVolume makes the kubelet of a host report no volume as in use, whatever it has mounted,
	// until its next boot or until the faults are withdrawn.
	DropVolume *HostOp `json:"dropVolume,omitempty"`
	// moveBMC has a BMC answer at another address, as one that is replaced or connected anew does.
	// The address is a host name in spec.bmc of BareMetalHosts: at first a BMC has its host's.
	MoveBMC *MoveOp `json:"moveBMC,omitempty"`
	// addFault makes a BMC misbehave.
	AddFault *FaultOp `json:"addFault,omitempty"`
	// removeFault ends a BMC's misbehaviour.
	RemoveFault *FaultName `json:"removeFault,omitempty"`
	// crash kills a controller, immediately or at its n-th effect from now on.
	Crash *CrashOp `json:"crash,omitempty"`
	// startSecond starts a second process of a controller, named CONTROLLER-2, beside the
	// one that is running; neither knows of the other.
	StartSecond *ControllerOp `json:"startSecond,omitempty"`
	// stopSecond ends the process that startSecond started.
	StopSecond *ControllerOp `json:"stopSecond,omitempty"`
	// pauseController suspends a controller's process. Requests that it has sent are still
	// carried out.
	PauseController *ControllerOp `json:"pauseController,omitempty"`
	// resumeController lets the process continue where it was, with what it knew.
	ResumeController *ControllerOp `json:"resumeController,omitempty"`
	// setClock sets the clock of a controller or a host wrong.
	SetClock *ClockOp `json:"setClock,omitempty"`
	// freezeCache stops a controller's cache from learning of changes.
	FreezeCache *CacheOp `json:"freezeCache,omitempty"`
	// thawCache lets a controller's cache catch up.
	ThawCache *CacheOp `json:"thawCache,omitempty"`
	// expireWatch ends the watch of a controller's cache with 410, because the revision to
	// continue from is no longer kept. The cache lists again, and never sees what happened
	// in between.
	ExpireWatch *CacheOp `json:"expireWatch,omitempty"`
	// annotate sets an annotation, as a user would.
	Annotate *AnnotateOp `json:"annotate,omitempty"`
	// removeAnnotation removes an annotation, as a user would.
	RemoveAnnotation *AnnotateOp `json:"removeAnnotation,omitempty"`
	// setOnline sets spec.online of a BareMetalHost, as a user would.
	SetOnline *OnlineOp `json:"setOnline,omitempty"`
	// patch merges content into an object, as a user would.
	Patch *PatchOp `json:"patch,omitempty"`
	// delete deletes an object, as a user would. It has no effect if the object does not
	// exist.
	Delete *ObjectOp `json:"delete,omitempty"`
	// create recreates an object of the topology, or creates one with the given content, as
	// a user would. An object that exists is left as it is.
	Create *CreateOp `json:"create,omitempty"`
	// failAPI makes the API server refuse requests of controllers.
	FailAPI *FailAPIOp `json:"failAPI,omitempty"`
	// apiOutage makes the API server unreachable for everybody, kubelets included.
	APIOutage *OutageOp `json:"apiOutage,omitempty"`
	// etcdOutage makes the store behind the API server unavailable: what was read before is
	// still served, but every write fails, including those of kubelets.
	EtcdOutage *struct{} `json:"etcdOutage,omitempty"`
	// apiRestore brings the API server and etcd back, and ends every failAPI.
	APIRestore *struct{} `json:"apiRestore,omitempty"`
	// killIronic kills the topology's Ironic, API and conductor, whatever it is doing.
	KillIronic *struct{} `json:"killIronic,omitempty"`
	// startIronic restarts Ironic with the record that it had, and returns when it answers.
	StartIronic *struct{} `json:"startIronic,omitempty"`
	// heal withdraws every fault but those that last for good; after the last step, a run does
	// this by itself.
	Heal *HealOp `json:"heal,omitempty"`
}

// World performs operations. It has one method for each field of Op, so that a world that lacks one
// doesn't compile. Each returns when the operation is accepted. One that a world can't do stands in
// its Capabilities, and is never asked of it.
type World interface {
	Cut(*LinkOp) error
	Impair(*ImpairOp) error
	Restore(*LinkOp) error
	StopKubelet(*HostOp) error
	StopFeeding(*HostOp) error
	StopAgent(*HostOp) error
	IgnoreShutdown(*HostOp) error
	Pause(*HostOp) error
	Resume(*HostOp) error
	Hang(*HostOp) error
	Panic(*HostOp) error
	FillDisk(*HostOp) error
	PowerLoss(*HostOp) error
	PowerUp(*HostOp) error
	BreakStorage(*StorageOp) error
	MendStorage(*StorageOp) error
	FenceStorage(*HostOp) error
	UnfenceStorage(*HostOp) error
	DropVolume(*HostOp) error
	MoveBMC(*MoveOp) error
	AddFault(*FaultOp) error
	RemoveFault(*FaultName) error
	Crash(*CrashOp) error
	StartSecond(*ControllerOp) error
	StopSecond(*ControllerOp) error
	PauseController(*ControllerOp) error
	ResumeController(*ControllerOp) error
	SetClock(*ClockOp) error
	FreezeCache(*CacheOp) error
	ThawCache(*CacheOp) error
	ExpireWatch(*CacheOp) error
	Annotate(*AnnotateOp) error
	RemoveAnnotation(*AnnotateOp) error
	SetOnline(*OnlineOp) error
	Patch(*PatchOp) error
	Delete(*ObjectOp) error
	Create(*CreateOp) error
	FailAPI(*FailAPIOp) error
	APIOutage(*OutageOp) error
	EtcdOutage(*struct{}) error
	APIRestore(*struct{}) error
	KillIronic(*struct{}) error
	StartIronic(*struct{}) error
	Heal(*HealOp) error
}

// Perform does an operation to a world.
func Perform(op Op, w World) error {
	set := op.set()
	if len(set) != 1 {
		return errors.New("an operation does exactly one thing, but this does " + op.String())
	}
	return set[0].do(w, &op)
}

// operation is the row that describes one operation. Fields that are left out are nothing.
type operation struct {
	// name is its name in scenarios.
	name string
	is   func(*Op) bool
	do   func(World, *Op) error
	// text says what it does in a few words: "cut worker-1".
	text func(*Op) string
	// host is the host that it is done to, object what else it is done to: a fault, a
	// controller, or an API object.
	host, object func(*Op) string
	// by is the user who does it at the API server, "" if none does: its operand says so.
	by func(*Op) string
	// check finds what the types don't show.
	check func(Checker, string, *Op)
	// begins is the state that it begins. Ends are the states that it ends, or their first words.
	// Orphan is the action that an earlier step must have taken to begin such a state: "cut it".
	begins func(*Op) state
	ends   func(*Op) []string
	orphan string
	// asks returns the features that it needs beside the operation itself, and that some worlds
	// lack.
	asks func(*Op, *Spec) []Feature
	// mayLast says that a step can do it for good. HealOp then names it to the worlds.
	mayLast bool
	// shows is the event without which it came to nothing, given the number of its step.
	shows func(*Op, int) Injection
	// takesBack reports whether a user still does it when a story stopped early, because
	// controllers can't go on before. Nil is never.
	takesBack func(*Op, *Unfinished) bool
	// idempotent says that it has its effect already where the object is missing.
	idempotent bool
	// switches says that it can change a host's power, or end its boot, without a controller.
	switches bool
	// fault is what it does to faults of BMCs.
	fault FaultChange
	// hinders names the party that it holds up, nil for none, until the state that it begins ends.
	// Effects with events of their own, such as a process that is down, a link that is cut or a
	// request that is refused, are left to those events.
	hinders hinders[Op]
}

// FaultChange is what an operation does to the faults of BMCs.
type FaultChange int

// An operation leaves faults alone, begins the one that its event names on the event's host, or
// ends it on every host.
const (
	NoFaultChange FaultChange = iota
	FaultBegins
	FaultEnds
)

// FaultChangeOf is what the operation of this name does to faults of BMCs: the name is the Key of
// its event.
func FaultChangeOf(name string) FaultChange {
	for i := range operations {
		if operations[i].name == name {
			return operations[i].fault
		}
	}
	return NoFaultChange
}

// Unfinished describes a story that stopped before its last step.
type Unfinished struct {
	// Powerless says that no controller of the story switches hosts on.
	Powerless bool
	// Obstacles are the kinds of objects that keep controllers from their work.
	Obstacles []string
}

// TakesBack reports whether a user still does op when a story stopped early, because controllers
// can't go on before.
func (op *Op) TakesBack(u *Unfinished) bool {
	takesBack := op.declared().takesBack
	return takesBack != nil && takesBack(op, u)
}

// Idempotent reports whether op has its effect already where its object is missing.
func (op *Op) Idempotent() bool { return op.declared().idempotent }

// Switches reports whether op can change a host's power, or end its boot, without a controller.
func (op *Op) Switches() bool {
	declared := op.declared()
	return declared != nil && declared.switches
}

// Injection is a fault, a crash or a deviation. It takes effect with the event that says so: of
// this kind, with this actor and value where they are given.
type Injection struct {
	// Name says in a clause that it had no effect.
	Name         string
	Event        history.Kind
	Actor, Value string
}

// Matches reports whether an event says that it took effect.
func (i *Injection) Matches(e *history.Event) bool {
	return i.Event == e.Kind && matches(i.Actor, e.Actor) && matches(i.Value, e.Value)
}

// state is a condition that one operation begins and another ends, as a clause: "worker-1 is cut
// off". One that is brief may be over by itself.
type state struct {
	clause string
	brief  bool
}

// of describes an operation with an operand of type T; its fields are those of operation.
type of[T any] struct {
	text         func(*T) string
	host, object func(*T) string
	check        func(Checker, string, *T)
	begins       func(*T) state
	ends         func(*T) []string
	orphan       string
	asks         func(*T, *Spec) []Feature
	mayLast      bool
	shows        func(*T, int) Injection
	takesBack    func(*T, *Unfinished) bool
	idempotent   bool
	switches     bool
	fault        FaultChange
}

// hinders names the party that an operation holds up in a world with these timings, nil if none.
type hinders[T any] func(*T, *invariant.Timings) *history.Hindrance

// declare describes the operation of a field of Op. Its parameters include hinders, so that no
// operation can leave that out.
func declare[T any](name string, field func(*Op) *T, do func(World, *T) error, hinders hinders[T], o of[T]) operation {
	declared := operation{
		name: name, orphan: o.orphan, mayLast: o.mayLast, idempotent: o.idempotent, switches: o.switches, fault: o.fault,
		hinders: func(op *Op, timings *invariant.Timings) *history.Hindrance {
			h := hinders(field(op), timings)
			if h != nil && o.begins != nil {
				h.Name = o.begins(field(op)).clause
			}
			return h
		},
		is: func(op *Op) bool { return field(op) != nil },
		by: func(op *Op) string {
			if user, ok := any(field(op)).(interface{ By() string }); ok {
				return user.By()
			}
			return ""
		},
		do:   func(w World, op *Op) error { return do(w, field(op)) },
		text: on(field, o.text), host: on(field, o.host), object: on(field, o.object),
		begins: on(field, o.begins), ends: on(field, o.ends),
		check: func(c Checker, path string, op *Op) {
			if o.check != nil {
				o.check(c, path, field(op))
			}
		},
		asks: func(op *Op, spec *Spec) []Feature {
			if o.asks == nil {
				return nil
			}
			return o.asks(field(op), spec)
		},
	}
	if o.takesBack != nil {
		declared.takesBack = func(op *Op, u *Unfinished) bool { return o.takesBack(field(op), u) }
	}
	if o.shows != nil {
		declared.shows = func(op *Op, step int) Injection { return o.shows(field(op), step) }
	}
	return declared
}

// on makes a function of operands one of operations. Without it the answer is nothing.
func on[T, R any](field func(*Op) *T, f func(*T) R) func(*Op) R {
	return func(op *Op) (nothing R) {
		if f == nil {
			return nothing
		}
		return f(field(op))
	}
}

// operations are all there are, in the order of Op's fields.
var operations = []operation{
	declare("cut", func(op *Op) *LinkOp { return op.Cut }, World.Cut, nobody, of[LinkOp]{
		text: func(l *LinkOp) string { return "cut " + l.String() }, host: (*LinkOp).host, object: (*LinkOp).object,
		check:  checkLinks,
		begins: func(l *LinkOp) state { return state{clause: l.String() + " is cut off"} },
		asks:   (*LinkOp).asks, mayLast: true,
	}),
	declare("impair", func(op *Op) *ImpairOp { return op.Impair }, World.Impair, nobody, of[ImpairOp]{
		text: (*ImpairOp).String, host: func(i *ImpairOp) string { return i.Link().host() }, object: func(i *ImpairOp) string { return i.Link().object() },
		check:  checkImpair,
		begins: func(i *ImpairOp) state { return state{clause: i.Link().String() + " is poor"} },
	}),
	declare("restore", func(op *Op) *LinkOp { return op.Restore }, World.Restore, nobody, of[LinkOp]{
		text: func(l *LinkOp) string { return "restore " + l.String() }, host: (*LinkOp).host, object: (*LinkOp).object,
		check: checkLinks,
		ends:  func(l *LinkOp) []string { return []string{l.String() + " is cut off", l.String() + " is poor"} }, orphan: "cut it",
		asks: (*LinkOp).asks,
	}),
	declare("stopKubelet", func(op *Op) *HostOp { return op.StopKubelet }, World.StopKubelet, itsKubelet, of[HostOp]{
		text: words("stop the kubelet of"), host: (*HostOp).name, check: checkHost,
	}),
	declare("stopFeeding", func(op *Op) *HostOp { return op.StopFeeding }, World.StopFeeding, itsBoot, of[HostOp]{
		text: words("stop feeding the watchdog of"), host: (*HostOp).name, check: checkStopFeeding, switches: true,
	}),
	declare("stopAgent", func(op *Op) *HostOp { return op.StopAgent }, World.StopAgent, nobody, of[HostOp]{
		text: words("stop in order the agent of"), host: (*HostOp).name, check: checkStopAgent,
	}),
	declare("ignoreShutdown", func(op *Op) *HostOp { return op.IgnoreShutdown }, World.IgnoreShutdown, nobody, of[HostOp]{
		text: words("ignore shutdown on"), host: (*HostOp).name, check: checkHost,
	}),
	declare("pause", func(op *Op) *HostOp { return op.Pause }, World.Pause, nobody, of[HostOp]{
		text: words("pause"), host: (*HostOp).name, check: checkHost,
		begins: hostIs("is paused"), asks: watchdogWhilePaused, switches: true,
	}),
	declare("resume", func(op *Op) *HostOp { return op.Resume }, World.Resume, nobody, of[HostOp]{
		text: words("resume"), host: (*HostOp).name, check: checkHost,
		ends: hostIsNo("is paused"), orphan: "paused it",
	}),
	declare("hang", func(op *Op) *HostOp { return op.Hang }, World.Hang, itsBoot, of[HostOp]{
		text: words("hang the user space of"), host: (*HostOp).name, check: checkHost, switches: true,
	}),
	declare("panic", func(op *Op) *HostOp { return op.Panic }, World.Panic, itsBoot, of[HostOp]{
		text: words("panic the kernel of"), host: (*HostOp).name, check: checkHost, switches: true,
	}),
	declare("fillDisk", func(op *Op) *HostOp { return op.FillDisk }, World.FillDisk, itself, of[HostOp]{
		text: words("fill the disk of"), host: (*HostOp).name, check: checkHost,
		begins: hostIs("has a full disk"),
	}),
	declare("powerLoss", func(op *Op) *HostOp { return op.PowerLoss }, World.PowerLoss, nobody, of[HostOp]{
		text: words("power loss of"), host: (*HostOp).name, check: checkHost, switches: true,
	}),
	declare("powerUp", func(op *Op) *HostOp { return op.PowerUp }, World.PowerUp, nobody, of[HostOp]{
		text: words("power up"), host: (*HostOp).name, check: checkHost, switches: true,
		takesBack: func(_ *HostOp, u *Unfinished) bool { return u.Powerless },
	}),
	declare("breakStorage", func(op *Op) *StorageOp { return op.BreakStorage }, World.BreakStorage, (*StorageOp).hinders, of[StorageOp]{
		text: func(s *StorageOp) string {
			if s.Refuses {
				return "refuse " + s.failing()
			}
			return "hang " + s.failing()
		},
		host: func(s *StorageOp) string { return s.Host }, object: func(s *StorageOp) string { return string(s.Does) },
		check: checkStorage, mayLast: true,
		begins: func(s *StorageOp) state { return state{clause: s.failing() + " fails"} },
	}),
	declare("mendStorage", func(op *Op) *StorageOp { return op.MendStorage }, World.MendStorage, nobody, of[StorageOp]{
		text: func(s *StorageOp) string { return "mend " + s.failing() },
		host: func(s *StorageOp) string { return s.Host }, object: func(s *StorageOp) string { return string(s.Does) },
		check: checkStorage,
		ends:  func(s *StorageOp) []string { return []string{s.failing() + " fails"} }, orphan: "broken it",
	}),
	declare("fenceStorage", func(op *Op) *HostOp { return op.FenceStorage }, World.FenceStorage, nobody, of[HostOp]{
		text: words("keep out of the storage"), host: (*HostOp).name, check: checkOnVolume,
		begins: hostIs("is kept out of the storage"),
	}),
	declare("unfenceStorage", func(op *Op) *HostOp { return op.UnfenceStorage }, World.UnfenceStorage, nobody, of[HostOp]{
		text: words("let in to the storage again"), host: (*HostOp).name, check: checkOnVolume,
		ends: hostIsNo("is kept out of the storage"), orphan: "kept it out",
	}),
	declare("dropVolume", func(op *Op) *HostOp { return op.DropVolume }, World.DropVolume, nobody, of[HostOp]{
		text: words("drop the volume from what is in use on"), host: (*HostOp).name, check: checkOnVolume,
	}),
	declare("moveBMC", func(op *Op) *MoveOp { return op.MoveBMC }, World.MoveBMC, (*MoveOp).hinders, of[MoveOp]{
		text: func(m *MoveOp) string { return "move the BMC of " + m.Host + " to " + m.Address() },
		host: func(m *MoveOp) string { return m.Host }, object: (*MoveOp).Address, check: checkMove,
		begins: func(m *MoveOp) (s state) {
			if m.To != "" {
				s.clause = moved(m.Host)
			}
			return s
		},
		ends: func(m *MoveOp) []string { return []string{moved(m.Host)} },
	}),
	declare("addFault", func(op *Op) *FaultOp { return op.AddFault }, World.AddFault, (*FaultOp).hinders, of[FaultOp]{
		text:   func(f *FaultOp) string { return fmt.Sprintf("add fault %s to the BMC of %s", f.Name, f.Host) },
		host:   func(f *FaultOp) string { return f.Host },
		object: func(f *FaultOp) string { return f.Name },
		check:  Checker.Fault, mayLast: true, switches: true, fault: FaultBegins,
		begins: func(f *FaultOp) state { return state{clause: "fault " + f.Name + " of the BMC of " + f.Host} },
		shows: func(f *FaultOp, step int) Injection {
			return Injection{
				Name:  fmt.Sprintf("the fault %s of step %d bent no request", f.Name, step),
				Event: history.BMCFault, Value: f.Name,
			}
		},
	}),
	declare("removeFault", func(op *Op) *FaultName { return op.RemoveFault }, World.RemoveFault, nobody, of[FaultName]{
		text:   func(f *FaultName) string { return "remove fault " + f.Name },
		object: func(f *FaultName) string { return f.Name },
		check:  func(c Checker, path string, f *FaultName) { c.NoFault(path+".name", f.Name) }, fault: FaultEnds,
		ends: func(f *FaultName) []string { return []string{"fault " + f.Name + " of"} },
	}),
	declare("crash", func(op *Op) *CrashOp { return op.Crash }, World.Crash, nobody, of[CrashOp]{
		text:   (*CrashOp).String,
		host:   func(c *CrashOp) string { return c.Host },
		object: (*CrashOp).Process,
		check:  checkCrash,
		begins: func(c *CrashOp) (s state) {
			if c.Each {
				s.clause = c.Process() + " crashes at each of its effects"
			}
			return s
		},
		asks: pastAndFuture,
		shows: func(c *CrashOp, step int) Injection {
			return Injection{
				Name:  fmt.Sprintf("step %d (%s) crashed nobody", step, c),
				Event: history.ControllerCrashed, Actor: c.Process(),
			}
		},
	}),
	declare("startSecond", func(op *Op) *ControllerOp { return op.StartSecond }, World.StartSecond, nobody, of[ControllerOp]{
		text:   func(c *ControllerOp) string { return "start a second " + c.Controller },
		check:  func(c Checker, path string, op *ControllerOp) { c.Second(path+".controller", op.Controller) },
		begins: func(c *ControllerOp) state { return state{clause: "there is a second " + c.Controller} },
	}),
	declare("stopSecond", func(op *Op) *ControllerOp { return op.StopSecond }, World.StopSecond, nobody, of[ControllerOp]{
		text:  func(c *ControllerOp) string { return "stop the second " + c.Controller },
		check: func(c Checker, _ string, op *ControllerOp) { c.NoSecond(op.Controller) },
		ends:  func(c *ControllerOp) []string { return []string{"there is a second " + c.Controller} }, orphan: "started it",
	}),
	declare("pauseController", func(op *Op) *ControllerOp { return op.PauseController }, World.PauseController, (*ControllerOp).hinders, of[ControllerOp]{
		object: (*ControllerOp).process,
		text:   func(c *ControllerOp) string { return "pause the controller " + c.Controller },
		check:  func(c Checker, path string, op *ControllerOp) { c.Controller(path+".controller", op.Controller) },
		begins: func(c *ControllerOp) state { return state{clause: c.Controller + " stands still"} }, mayLast: true,
	}),
	declare("resumeController", func(op *Op) *ControllerOp { return op.ResumeController }, World.ResumeController, nobody, of[ControllerOp]{
		object: (*ControllerOp).process,
		text:   func(c *ControllerOp) string { return "resume the controller " + c.Controller },
		ends:   func(c *ControllerOp) []string { return []string{c.Controller + " stands still"} }, orphan: "paused it",
	}),
	declare("setClock", func(op *Op) *ClockOp { return op.SetClock }, World.SetClock, (*ClockOp).hinders, of[ClockOp]{
		text: func(c *ClockOp) string {
			text := fmt.Sprintf("set the clock of %s to %+.1fs", c.Controller+c.Host, c.Offset().Seconds())
			if drift := c.Drift(); drift != 0 {
				text += fmt.Sprintf(", %+.3fs each second", drift.Seconds())
			}
			return text
		},
		host:  func(c *ClockOp) string { return c.Host },
		check: checkClock,
		begins: func(c *ClockOp) (s state) {
			if c.Offset() != 0 || c.Drift() != 0 {
				s.clause = history.ClockOf(c.Controller + c.Host)
			}
			return s
		},
		ends: func(c *ClockOp) []string { return []string{history.ClockOf(c.Controller + c.Host)} },
		asks: clocks,
	}),
	declare("freezeCache", func(op *Op) *CacheOp { return op.FreezeCache }, World.FreezeCache, (*CacheOp).hinders, of[CacheOp]{
		text:   func(c *CacheOp) string { return fmt.Sprintf("freeze %s in the cache of %s", c.Kind, c.Controller) },
		object: func(c *CacheOp) string { return c.Controller },
		check:  checkCache,
		begins: func(c *CacheOp) state { return state{clause: c.Kind + " is frozen in the cache of " + c.Controller} },
	}),
	declare("thawCache", func(op *Op) *CacheOp { return op.ThawCache }, World.ThawCache, nobody, of[CacheOp]{
		text:   func(c *CacheOp) string { return fmt.Sprintf("thaw %s in the cache of %s", c.Kind, c.Controller) },
		object: func(c *CacheOp) string { return c.Controller },
		check:  checkCache,
		ends:   func(c *CacheOp) []string { return []string{c.Kind + " is frozen in the cache of " + c.Controller} }, orphan: "frozen it",
	}),
	declare("expireWatch", func(op *Op) *CacheOp { return op.ExpireWatch }, World.ExpireWatch, (*CacheOp).hinders, of[CacheOp]{
		text:   func(c *CacheOp) string { return fmt.Sprintf("expire the watch of %s of %s", c.Kind, c.Controller) },
		object: func(c *CacheOp) string { return c.Controller },
		check:  checkCache,
		ends:   func(c *CacheOp) []string { return []string{c.Kind + " is frozen in the cache of " + c.Controller} },
		shows: func(c *CacheOp, step int) Injection {
			return Injection{
				Name:  fmt.Sprintf("step %d (expire the watch of %s of %s) ended no watch", step, c.Kind, c.Controller),
				Event: history.APIFault, Actor: c.Controller, Value: "410",
			}
		},
	}),
	declare("annotate", func(op *Op) *AnnotateOp { return op.Annotate }, World.Annotate, nobody, of[AnnotateOp]{
		text: func(a *AnnotateOp) string {
			return fmt.Sprintf("annotate %s with %s=%s", a.Selection(), a.Key, a.Value)
		},
		host:   func(a *AnnotateOp) string { return nameIn(a.Object) },
		object: func(a *AnnotateOp) string { return a.Object },
		check:  checkAnnotation,
	}),
	declare("removeAnnotation", func(op *Op) *AnnotateOp { return op.RemoveAnnotation }, World.RemoveAnnotation, nobody, of[AnnotateOp]{
		text:   func(a *AnnotateOp) string { return fmt.Sprintf("remove annotation %s from %s", a.Key, a.Selection()) },
		host:   func(a *AnnotateOp) string { return nameIn(a.Object) },
		object: func(a *AnnotateOp) string { return a.Object },
		check:  checkNoAnnotation, idempotent: true,
		takesBack: func(*AnnotateOp, *Unfinished) bool { return true },
	}),
	declare("setOnline", func(op *Op) *OnlineOp { return op.SetOnline }, World.SetOnline, nobody, of[OnlineOp]{
		text:  func(o *OnlineOp) string { return fmt.Sprintf("set %s online=%t", o.Host, o.Online) },
		host:  func(o *OnlineOp) string { return o.Host },
		check: func(c Checker, path string, o *OnlineOp) { c.Host(path+".host", o.Host) },
	}),
	declare("patch", func(op *Op) *PatchOp { return op.Patch }, World.Patch, nobody, of[PatchOp]{
		text:   func(p *PatchOp) string { return fmt.Sprintf("patch %s with %s", p.Selection(), p.Merge) },
		host:   func(p *PatchOp) string { return nameIn(p.Object) },
		object: func(p *PatchOp) string { return p.Object },
		check:  checkPatch, asks: patches, ends: (*PatchOp).ends,
	}),
	declare("delete", func(op *Op) *ObjectOp { return op.Delete }, World.Delete, nobody, of[ObjectOp]{
		text:   func(o *ObjectOp) string { return "delete " + o.Selection().String() },
		host:   func(o *ObjectOp) string { return nameIn(o.Object) },
		object: func(o *ObjectOp) string { return o.Object },
		check:  func(c Checker, path string, o *ObjectOp) { c.Selection(path, o.Selection(), IsChanged) },
		takesBack: func(o *ObjectOp, u *Unfinished) bool {
			kind, _, _ := strings.Cut(cmp.Or(o.Selection().Object, o.Selection().Kind), "/")
			return slices.Contains(u.Obstacles, kind)
		},
	}),
	declare("create", func(op *Op) *CreateOp { return op.Create }, World.Create, nobody, of[CreateOp]{
		text:   (*CreateOp).String,
		host:   func(o *CreateOp) string { return nameIn(o.Object) },
		object: func(o *CreateOp) string { return o.Object },
		check:  checkCreate, asks: volumes,
	}),
	declare("failAPI", func(op *Op) *FailAPIOp { return op.FailAPI }, World.FailAPI, (*FailAPIOp).hinders, of[FailAPIOp]{
		text:   (*FailAPIOp).String,
		check:  checkFailAPI,
		begins: func(f *FailAPIOp) state { return state{clause: apiRefuses, brief: f.Times > 0} },
		shows: func(f *FailAPIOp, step int) Injection {
			return Injection{
				Name:  fmt.Sprintf("step %d (%s) refused no request", step, f),
				Event: history.APIFault, Actor: f.Controller, Value: fmt.Sprint(f.Code),
			}
		},
	}),
	declare("apiOutage", func(op *Op) *OutageOp { return op.APIOutage }, World.APIOutage, (*OutageOp).hinders, of[OutageOp]{
		text: func(o *OutageOp) string {
			if o.Hang {
				return "API outage: requests hang"
			}
			return "API outage"
		},
		begins: func(*OutageOp) state { return state{clause: apiAway} },
	}),
	declare("etcdOutage", func(op *Op) *struct{} { return op.EtcdOutage }, World.EtcdOutage, everybody, of[struct{}]{
		text:   func(*struct{}) string { return "etcd outage" },
		begins: func(*struct{}) state { return state{clause: etcdAway} },
	}),
	declare("apiRestore", func(op *Op) *struct{} { return op.APIRestore }, World.APIRestore, nobody, of[struct{}]{
		text: func(*struct{}) string { return "API restored" },
		ends: func(*struct{}) []string { return []string{apiRefuses, apiAway, etcdAway} }, orphan: "taken it away or made it fail",
	}),
	declare("killIronic", func(op *Op) *struct{} { return op.KillIronic }, World.KillIronic, everybody, of[struct{}]{
		text:   func(*struct{}) string { return "kill Ironic" },
		check:  checkIronic,
		begins: func(*struct{}) state { return state{clause: ironicDead} },
	}),
	declare("startIronic", func(op *Op) *struct{} { return op.StartIronic }, World.StartIronic, nobody, of[struct{}]{
		text:  func(*struct{}) string { return "start Ironic" },
		check: checkIronic,
		ends:  func(*struct{}) []string { return []string{ironicDead} }, orphan: "killed it",
	}),
	declare("heal", func(op *Op) *HealOp { return op.Heal }, World.Heal, nobody, of[HealOp]{
		text:  func(*HealOp) string { return "heal" },
		check: func(c Checker, _ string, _ *HealOp) { c.Healed() },
		ends:  func(*HealOp) []string { return []string{Everything} },
	}),
}

// nobody says that the operation holds up no party.
func nobody[T any](*T, *invariant.Timings) *history.Hindrance { return nil }

// everybody is.
func everybody[T any](*T, *invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: history.Everybody, Fails: true}
}

// itself is held up: what runs on the host; itsBoot, until the boot ends.
func itself(h *HostOp, _ *invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: HostEnd(h.Host), Fails: true}
}
func itsBoot(h *HostOp, _ *invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: HostEnd(h.Host), Name: history.BootOf(h.Host), Fails: true}
}
func itsKubelet(h *HostOp, _ *invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: HostEnd(h.Host), Name: history.KubeletOf(h.Host), Fails: true}
}

// States that several operations know of. What ends Everything ends every state.
const (
	apiAway    = "the API server is away"
	apiRefuses = "the API server refuses requests"
	etcdAway   = "etcd is away"
	ironicDead = "Ironic is dead"
	Everything = ""
)

// moved is the state of a host whose BMC isn't where its BareMetalHost says.
func moved(host string) string { return "the BMC of " + host + " has moved" }

// WithoutAPI are the states in which no user can do anything.
var WithoutAPI = []string{apiAway, etcdAway}

func (h *HostOp) name() string { return h.Host }

func words(what string) func(*HostOp) string {
	return func(h *HostOp) string { return what + " " + h.Host }
}

func hostIs(what string) func(*HostOp) state {
	return func(h *HostOp) state { return state{clause: h.Host + " " + what} }
}

func hostIsNo(longer string) func(*HostOp) []string {
	return func(h *HostOp) []string { return []string{h.Host + " " + longer} }
}

// nameIn is the name in KIND/NAME.
func nameIn(object string) string {
	_, name, _ := strings.Cut(object, "/")
	return name
}

// Ended reports whether the clause of a state is, or begins with, what ends it.
func Ended(clause, end string) bool {
	rest, ok := strings.CutPrefix(clause, end)
	return ok && (rest == "" || end == Everything || rest[0] == ' ')
}
