package backendtest

import (
	"encoding/json"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

const (
	engine = string(history.Engine)
	// reboot is the annotation that asks for a power cycle; one that goes on with a
	// client's name holds the host off for as long as it stays.
	reboot = "reboot.metal3.io"
	hold   = reboot + "/backendtest"
	hard   = `{"mode":"hard"}`
)

// backup is one of several users, by its name.
const backup = "backup"

func onHost(name string) *scenarios.HostOp { return &scenarios.HostOp{Host: name} }

func bmh(name string) string { return "BareMetalHost/" + name }

func asks(host, key, value string) *scenarios.AnnotateOp {
	return &scenarios.AnnotateOp{Object: bmh(host), Key: key, Value: value, As: backup}
}

// holds holds a host off and lets it go, so that it boots.
func (w *walk) holds(host string) {
	w.Helper()
	w.do(scenarios.Op{Annotate: asks(host, hold, hard)})
	w.next(event{kind: history.AnnotationSet, host: host, object: bmh(host), actor: history.UserNamed(backup), key: hold, value: hard})
}

func (w *walk) letsGo(host string) {
	w.Helper()
	w.do(scenarios.Op{RemoveAnnotation: asks(host, hold, "")})
	w.comes(event{kind: history.BootComplete, host: host})
	w.recovers(host)
}

// movesBMC shows that a BMC that has moved is asked in vain, until it is where its BareMetalHost
// says. The walk goes on at once in a world that can't move one.
func (w *walk) movesBMC(host string, can bool) {
	w.Helper()
	if !can {
		return
	}
	w.do(scenarios.Op{MoveBMC: &scenarios.MoveOp{Host: host, To: "spare"}})
	w.do(scenarios.Op{Annotate: asks(host, hold, hard)})
	w.never(event{kind: history.BMCCommand, host: host}, 5*time.Second)
	w.do(scenarios.Op{Heal: new(scenarios.HealOp)})
	w.comes(event{kind: history.PowerOff, host: host, actor: "reboot"})
	w.letsGo(host)
}

// recovers waits until the Node of a host that has booted is Ready. A host can be back
// before anybody has noticed that it was away, or notice may be taken afterwards.
func (w *walk) recovers(host string) {
	w.Helper()
	w.until(5*time.Second, func(history.Event) bool { return false })
	for i := len(w.seen) - 1; i >= 0; i-- {
		switch e := w.seen[i]; {
		case e.Host == host && e.Kind == history.NodeReady:
			return
		case e.Host == host && e.Kind == history.NodeNotReady:
			w.comes(event{kind: history.NodeReady, host: host})
			return
		}
	}
	w.Errorf("the Node of %s was never Ready", host)
}

// power walks through what switches hosts: who did it is a field of every edge, and a
// BMC's command is recorded when it is received.
func power(w *walk) {
	const host = plain
	w.do(scenarios.Op{Heal: new(scenarios.HealOp)}) // where nothing is broken
	w.holds(host)
	w.next(event{kind: history.BMCCommand, host: host, actor: "reboot", value: "ForceOff"})
	w.next(event{kind: history.BootEnded, host: host, actor: "reboot"})
	w.next(event{kind: history.PowerOff, host: host, actor: "reboot"})
	w.do(scenarios.Op{RemoveAnnotation: asks(host, hold, "")})
	w.next(event{kind: history.AnnotationRemoved, host: host, actor: history.UserNamed(backup), key: hold})
	w.next(event{kind: history.BMCCommand, host: host, actor: "reboot", value: "On"})
	w.next(event{kind: history.PowerOn, host: host, actor: "reboot"})
	w.next(event{kind: history.BootStarted, host: host})
	w.next(event{kind: history.BootComplete, host: host})

	// Steps of the scenario that switch power name the scenario itself as their actor.
	w.recovers(host)
	w.do(scenarios.Op{PowerLoss: onHost(host)})
	w.next(event{kind: history.BootEnded, host: host, actor: engine})
	w.next(event{kind: history.PowerOff, host: host, actor: engine})
	w.do(scenarios.Op{PowerUp: onHost(host)})
	w.next(event{kind: history.PowerOn, host: host, actor: engine})
	w.comes(event{kind: history.BootComplete, host: host})
	w.recovers(host)

	// A command that its BMC keeps waiting was received all the same, and once.
	const wait = 3 * time.Second
	rule := json.RawMessage(`{"name": "slow", "when": {"reset": ["ForceOff"]}, "effect": {"delay": "3s"}}`)
	w.do(scenarios.Op{AddFault: &scenarios.FaultOp{Name: "slow", Host: host, Rule: rule}})
	w.do(scenarios.Op{Annotate: asks(host, hold, hard)})
	before := w.count(history.BMCCommand)
	received := w.comes(event{kind: history.BMCCommand, host: host, actor: "reboot", value: "ForceOff"})
	off := w.comes(event{kind: history.PowerOff, host: host, actor: "reboot"})
	if off.At-received.At < wait-time.Second {
		w.Errorf("%s, and %s: it was received %s before it was executed, want about %s", received, off, off.At-received.At, wait)
	}
	if commands := w.count(history.BMCCommand) - before; commands != 1 {
		w.Errorf("one command was recorded %d times", commands)
	}
	// Where an answer takes its time, that it was late is known only after the host is off.
	if slow := (event{kind: history.BMCFault, host: host, actor: "reboot", value: "slow"}); !w.has(slow) {
		w.comes(slow)
	}
	w.do(scenarios.Op{RemoveFault: &scenarios.FaultName{Name: "slow"}})
	w.letsGo(host)

	// A guest that ignores the button is forced off.
	w.do(scenarios.Op{IgnoreShutdown: onHost(host)})
	w.do(scenarios.Op{Annotate: asks(host, reboot, "")})
	w.next(event{kind: history.BMCCommand, host: host, value: "GracefulShutdown"})
	w.next(event{kind: history.BMCCommand, host: host, value: "ForceOff"})
	w.next(event{kind: history.PowerOff, host: host, actor: "reboot"})
	w.comes(event{kind: history.BootComplete, host: host})
	w.recovers(host)

	w.do(scenarios.Op{SetOnline: &scenarios.OnlineOp{Host: host}})
	w.next(event{kind: history.OnlineWanted, host: host, actor: history.User, value: "false"})
	w.next(event{kind: history.PowerOff, host: host, actor: "reboot"})
	w.do(scenarios.Op{SetOnline: &scenarios.OnlineOp{Host: host, Online: true}})
	w.next(event{kind: history.PowerOn, host: host, actor: "reboot"})
}

// users walks through what users do to objects.
func users(w *walk) {
	const host = plain
	patch := func(object, merge string) scenarios.Op {
		return scenarios.Op{Patch: &scenarios.PatchOp{Object: object, Merge: json.RawMessage(merge)}}
	}
	node := "Node/" + host
	w.do(patch(node, `{"spec":{"unschedulable":true}}`))
	w.next(event{kind: history.NodeCordoned, host: host, object: node, actor: history.User})
	w.do(patch(node, `{"spec":{"unschedulable":null}}`))
	w.next(event{kind: history.NodeUncordoned, host: host})
	w.do(patch(bmh(host), `{"metadata":{"labels":{"backendtest":"x"}},"status":{"provisioning":{"state":"preparing"}}}`))
	w.next(event{kind: history.ProvisioningState, host: host, value: "preparing"})
	// By its label as well as by its name.
	paused := &scenarios.AnnotateOp{Kind: "BareMetalHost", Labels: map[string]string{"backendtest": "x"}, Key: "cluster.x-k8s.io/paused"}
	w.do(scenarios.Op{Annotate: paused})
	w.next(event{kind: history.AnnotationSet, host: host, object: bmh(host), actor: history.User, key: paused.Key})
	w.do(scenarios.Op{RemoveAnnotation: paused})
	w.next(event{kind: history.AnnotationRemoved, host: host, object: bmh(host), key: paused.Key})
	w.ineffective(scenarios.Op{Delete: &scenarios.ObjectOp{Kind: "BareMetalHost", Labels: map[string]string{"backendtest": "y"}}})
	w.do(patch(bmh(host), `{"metadata":{"labels":{"backendtest":null}},"status":{"provisioning":{"state":"externally provisioned"}}}`))
	w.next(event{kind: history.ProvisioningState, host: host, value: "externally provisioned"})
	machine := &scenarios.ObjectOp{Object: "Machine/" + host}
	for range 2 { // the second time there is nothing to do
		w.do(scenarios.Op{Delete: machine})
	}
	w.next(event{kind: history.MachineDeleted, host: host, actor: history.User})
	for range 2 {
		w.do(scenarios.Op{Create: &scenarios.CreateOp{Object: machine.Object}})
	}
	w.next(event{kind: history.MachineCreated, host: host, actor: history.User})
	w.do(patch(machine.Object, `{"status":{"nodeRef":{"name":"another"}}}`))
	w.comes(event{kind: history.MachineNode, host: host, value: "another"})
	w.do(scenarios.Op{Delete: &scenarios.ObjectOp{Object: node}})
	w.next(event{kind: history.NodeDeleted, host: host, actor: history.User})
	if !w.ineffective(patch(node, `{"spec":{"unschedulable":true}}`)).Missing {
		w.Errorf("a change of %s, which isn't there, is ineffective for another reason", node)
	}
	if err := w.b.Apply(scenarios.Op{Cut: &scenarios.LinkOp{Host: "nobody"}}); err == nil {
		w.Error("an operation on a host that doesn't exist was accepted")
	}
	if err := w.b.Apply(scenarios.Op{}); err == nil {
		w.Error("an empty operation was accepted")
	}
}

// hosts walks through what befalls hosts.
func hosts(w *walk, world scenarios.Capabilities) {
	has := able(world)
	w.do(scenarios.Op{Cut: &scenarios.LinkOp{Host: plain}})
	w.next(event{kind: history.LinkCut, host: plain, object: "api"})
	w.next(event{kind: history.NodeNotReady, host: plain})
	w.do(scenarios.Op{Restore: &scenarios.LinkOp{Host: plain}})
	w.next(event{kind: history.LinkRestored, host: plain, object: "api"})
	w.next(event{kind: history.NodeReady, host: plain})
	// In either direction alone, a link that is cut keeps the kubelet from renewing its Lease.
	for _, link := range (&scenarios.LinkOp{Between: []string{scenarios.HostEnd(plain), scenarios.API}}).Links(nil) {
		way := &scenarios.LinkOp{From: link.From, To: link.To}
		w.do(scenarios.Op{Cut: way})
		w.next(event{kind: history.LinkCut, host: plain})
		w.next(event{kind: history.NodeNotReady, host: plain})
		w.do(scenarios.Op{Restore: way})
		w.next(event{kind: history.LinkRestored, host: plain})
		w.next(event{kind: history.NodeReady, host: plain})
	}

	// A failure domain is cut off as a whole: each link that leads out of it.
	rack := &scenarios.LinkOp{Domain: domain}
	w.do(scenarios.Op{Cut: rack})
	w.next(event{kind: history.LinkCut, host: plain})
	w.next(event{kind: history.NodeNotReady, host: plain})
	w.do(scenarios.Op{Restore: rack})
	w.next(event{kind: history.LinkRestored, host: plain})
	w.next(event{kind: history.NodeReady, host: plain})

	// A link that is late enough is as good as cut.
	if has("impair") {
		w.do(scenarios.Op{Impair: &scenarios.ImpairOp{Host: plain, Delay: scenarios.Duration(30 * time.Second)}})
		w.next(event{kind: history.LinkImpaired, host: plain})
		w.next(event{kind: history.NodeNotReady, host: plain})
		w.do(scenarios.Op{Restore: &scenarios.LinkOp{Host: plain}})
		w.next(event{kind: history.LinkRestored, host: plain})
		w.next(event{kind: history.NodeReady, host: plain})
	}
	// A wrong clock is no reason to take a kubelet for dead.
	if has("setClock") {
		w.do(scenarios.Op{SetClock: &scenarios.ClockOp{Host: plain, Behind: scenarios.Duration(time.Hour)}})
		w.never(event{kind: history.NodeNotReady, host: plain}, 20*time.Second)
		w.do(scenarios.Op{SetClock: &scenarios.ClockOp{Host: plain}})
	}

	// Whether its user space hangs or its kernel panics, a host is on and does nothing until it is
	// reset.
	for _, op := range []scenarios.Op{{Hang: onHost(plain)}, {Panic: onHost(plain)}} {
		w.do(op)
		w.next(event{kind: history.HostPaused, host: plain})
		w.next(event{kind: history.NodeNotReady, host: plain})
		w.do(scenarios.Op{Resume: onHost(plain)}) // it was not paused
		w.do(scenarios.Op{PowerLoss: onHost(plain)})
		w.next(event{kind: history.BootEnded, host: plain, actor: engine})
		w.do(scenarios.Op{PowerUp: onHost(plain)})
		w.comes(event{kind: history.BootComplete, host: plain})
		w.recovers(plain)
	}

	w.do(scenarios.Op{Pause: onHost(plain)})
	w.next(event{kind: history.HostPaused, host: plain})
	w.next(event{kind: history.NodeNotReady, host: plain})
	w.do(scenarios.Op{Resume: onHost(plain)})
	w.next(event{kind: history.HostResumed, host: plain})
	w.next(event{kind: history.NodeReady, host: plain})

	// What lasts for good stays when the other faults are withdrawn.
	cut := scenarios.Op{Cut: &scenarios.LinkOp{Host: plain}}
	w.do(cut)
	w.next(event{kind: history.NodeNotReady, host: plain})
	w.do(scenarios.HealAllBut(&cut))
	w.until(5*time.Second, func(e history.Event) bool {
		if e.Host == plain && (e.Kind == history.LinkRestored || e.Kind == history.NodeReady) {
			w.Errorf("%s, although the link is cut for good", e.Phrase())
		}
		return false
	})
	w.do(scenarios.Op{Heal: new(scenarios.HealOp)})
	w.next(event{kind: history.LinkRestored, host: plain})
	w.next(event{kind: history.NodeReady, host: plain})

	w.do(scenarios.Op{StopKubelet: onHost(plain)})
	w.next(event{kind: history.NodeNotReady, host: plain})
	w.do(scenarios.Op{Heal: new(scenarios.HealOp)})
	w.next(event{kind: history.NodeReady, host: plain})

	w.movesBMC(plain, has("moveBMC"))
	// Without an agent there is none to stop: the operating system goes on feeding the watchdog.
	if has("stopAgent") {
		w.do(scenarios.Op{StopAgent: onHost(guarded)})
		w.never(event{kind: history.WatchdogFired, host: guarded}, 20*time.Second)
	}
	// A watchdog that isn't fed any more resets the host.
	w.do(scenarios.Op{StopFeeding: onHost(guarded)})
	w.next(event{kind: history.WatchdogFired, host: guarded})
	w.next(event{kind: history.BootEnded, host: guarded, actor: engine})
	w.next(event{kind: history.BootComplete, host: guarded})
	if w.count(history.EvidenceLost) > 0 {
		w.Error("an observer fell silent")
	}
}

func able(world scenarios.Capabilities) func(scenarios.Feature) bool {
	return func(f scenarios.Feature) bool { return world.Lacks[f] == "" }
}

// processes walks through what befalls controllers and the API server.
//
// It is long because one walk saves a bring-up for each of its parts, which take a minute in a lab.
func processes(w *walk, world scenarios.Capabilities) {
	const name, host = "reboot", plain
	controller := &scenarios.ControllerOp{Controller: name}
	crash := func(op scenarios.CrashOp) {
		op.Controller, op.Point = name, scenarios.CrashBefore
		if op.Occurrence == 0 {
			op.Point = scenarios.CrashAfter
		}
		w.do(scenarios.Op{Crash: &op})
	}
	crash(scenarios.CrashOp{})
	w.next(event{kind: history.ControllerCrashed, actor: name})
	w.next(event{kind: history.ControllerStarted, actor: name})
	// One that is down already stays down for the longest of what its crashes say.
	for _, seconds := range [...]int{2, 6, 1} {
		crash(scenarios.CrashOp{RestartAfter: scenarios.Duration(time.Duration(seconds) * time.Second)})
	}
	w.next(event{kind: history.ControllerCrashed, actor: name})
	w.never(event{kind: history.ControllerStarted, actor: name}, 5*time.Second)
	w.next(event{kind: history.ControllerStarted, actor: name})
	crash(scenarios.CrashOp{Deed: "patch " + bmh(host), Occurrence: 1})
	w.holds(host)
	w.next(event{kind: history.ControllerCrashed, actor: name})
	w.comes(event{kind: history.PowerOff, host: host, actor: name})
	w.letsGo(host)

	w.do(scenarios.Op{StartSecond: controller})
	w.next(event{kind: history.ControllerStarted, actor: history.Process(name, 2)})
	w.do(scenarios.Op{StopSecond: controller})
	w.next(event{kind: history.ControllerCrashed, actor: history.Process(name, 2)})

	fail := &scenarios.FailAPIOp{Controller: name, Verb: "patch", Kind: "BareMetalHost", Code: 500}
	w.do(scenarios.Op{FailAPI: fail})
	w.holds(host)
	w.comes(event{kind: history.APIFault, actor: name, object: bmh(host), value: "500"})
	w.do(scenarios.Op{APIRestore: &struct{}{}})
	w.comes(event{kind: history.PowerOff, host: host, actor: name})
	w.letsGo(host)

	has := able(world)
	// still shows that the controller learns of nothing, or does nothing, in between.
	still := func(begin, end scenarios.Op) {
		w.Helper()
		if !has(scenarios.Feature(begin.Name())) {
			return
		}
		w.do(begin)
		w.holds(host)
		w.never(event{kind: history.ControllerEffect, actor: name}, 20*time.Second)
		w.do(end)
		w.comes(event{kind: history.PowerOff, host: host, actor: name})
		w.letsGo(host)
	}
	still(scenarios.Op{PauseController: controller}, scenarios.Op{ResumeController: controller})
	// The cache of hosts is frozen: only live reads would still see changes.
	cache := &scenarios.CacheOp{Controller: name, Kind: "BareMetalHost"}
	still(scenarios.Op{FreezeCache: cache}, scenarios.Op{ThawCache: cache})

	if has("expireWatch") {
		w.do(scenarios.Op{FreezeCache: cache})
		w.holds(host)
		w.never(event{kind: history.ControllerEffect, actor: name}, 20*time.Second)
		w.do(scenarios.Op{ExpireWatch: cache})
		w.next(event{kind: history.APIFault, actor: name, value: "410"})
		w.comes(event{kind: history.PowerOff, host: host, actor: name})
		w.letsGo(host)
	}

	if has(scenarios.FeatureControllerClocks) {
		const ahead = time.Hour
		requested := func() time.Time {
			w.Helper()
			w.holds(host)
			e := w.comes(event{kind: history.PendingRebootSince, host: host})
			for e.Value == "" { // the one before was answered
				e = w.comes(event{kind: history.PendingRebootSince, host: host})
			}
			at, err := time.Parse(time.RFC3339Nano, e.Value)
			if err != nil {
				w.Fatal(err)
			}
			w.comes(event{kind: history.PowerOff, host: host, actor: name})
			w.letsGo(host)
			return at
		}
		before := requested()
		w.do(scenarios.Op{SetClock: &scenarios.ClockOp{Controller: name, Ahead: scenarios.Duration(ahead)}})
		if after := requested(); after.Sub(before) < ahead {
			w.Errorf("with a clock %s ahead, a request of %s was followed by one of %s", ahead, before, after)
		}
		w.do(scenarios.Op{SetClock: &scenarios.ClockOp{Controller: name}})
	}
	if has("etcdOutage") {
		w.do(scenarios.Op{EtcdOutage: &struct{}{}})
		w.ineffective(scenarios.Op{Annotate: asks(host, hold, hard)})
		w.comes(event{kind: history.APIFault, value: "etcd"}) // as no Lease is renewed
		w.do(scenarios.Op{APIRestore: &struct{}{}})
	}
	if has("apiOutage") {
		w.do(scenarios.Op{APIOutage: &scenarios.OutageOp{}})
		w.ineffective(scenarios.Op{Annotate: asks(host, hold, hard)})
		w.comes(event{kind: history.APIFault, value: "outage"})
		w.do(scenarios.Op{APIRestore: &struct{}{}})
		w.holds(host)
		w.comes(event{kind: history.PowerOff, host: host, actor: name})
	}
}

// throughIronic walks through what becomes of an Ironic that owns the BMCs: it is the
// controller that has switched a host which Ironic switches for it.
func throughIronic(w *walk) {
	w.Helper()
	w.holds(plain)
	w.comes(event{kind: history.PowerOff, host: plain, actor: "reboot"})
	w.do(scenarios.Op{KillIronic: &struct{}{}})
	w.do(scenarios.Op{StartIronic: &struct{}{}})
	w.letsGo(plain)
	// What it owns it also looks after by itself.
	w.do(scenarios.Op{PowerLoss: onHost(plain)})
	w.comes(event{kind: history.PowerOn, host: plain, actor: "ironic"})
}

// storage walks through what becomes of a volume: it is written to once it is mounted, and goes to
// another host when its own is off and its Node is gone, unless the storage keeps it.
func storage(w *walk) {
	w.Helper()
	const data = "data"
	for _, kind := range [...]history.Kind{history.VolumeAttached, history.VolumeMounted} {
		if !w.has(event{kind: kind, host: plain, object: data}) {
			w.Errorf("the story began without a %s", kind)
		}
	}
	w.next(event{kind: history.VolumeWritten, host: plain, object: data})
	w.do(scenarios.Op{FenceStorage: onHost(plain)})
	w.next(event{kind: history.VolumeFenced, host: plain, object: data})
	w.do(scenarios.Op{UnfenceStorage: onHost(plain)})
	w.next(event{kind: history.VolumeUnfenced, host: plain, object: data})
	w.next(event{kind: history.VolumeWritten, host: plain, object: data})
	w.do(scenarios.Op{DropVolume: onHost(plain)})
	w.next(event{kind: history.VolumesInUse, host: plain})
	w.never(event{kind: history.VolumeUnmounted, host: plain}, time.Second) // and everybody has learned it
	detach := &scenarios.StorageOp{Does: scenarios.StorageDetach, Host: plain}
	w.do(scenarios.Op{BreakStorage: detach})
	w.do(scenarios.Op{PowerLoss: onHost(plain)})
	w.do(scenarios.Op{Delete: &scenarios.ObjectOp{Object: "Pod/exclusive"}})
	w.do(scenarios.Op{Delete: &scenarios.ObjectOp{Object: "Node/" + plain}})
	w.comes(event{kind: history.DetachAsked, host: plain, value: data})
	w.never(event{kind: history.VolumeDetached, host: plain, object: data}, 20*time.Second)
	w.do(scenarios.Op{MendStorage: detach})
	w.comes(event{kind: history.VolumeDetached, host: plain, object: data})
	w.comes(event{kind: history.VolumeWritten, object: data})
}
