package healthcheck

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// defaultStartup is Cluster API's default of checks.nodeStartupTimeoutSeconds.
const defaultStartup = 600 * time.Second

// lookAgain is when a Machine that is being remediated is looked at again, and not in the
// cache: one that has missed the beginning of a remediation hears nothing of its end, and one
// that stands still shows a remediation for ever.
const lookAgain = 30 * time.Second

// waitingReason is the reason of the condition while it is Unknown.
const waitingReason = "WaitingForNode"

// Settings are the options of the health check.
type Settings struct {
	// MissingNodeUnhealthyAtOnce gives a Machine whose Node was deleted no time
	// at all, as OpenShift's health check does: the variant that makes seed
	// 002's truth table loop (design, decision 6).
	MissingNodeUnhealthyAtOnce bool `json:"missingNodeUnhealthyAtOnce"`
	// CoolDown is how long nobody is marked after more Machines were unhealthy than the
	// MachineHealthCheck acts on. When what ailed them all is over they recover one by
	// one, and the last of them have been sick for long when they are few enough. A
	// process that starts doesn't know how many were before, and waits as long.
	CoolDown metav1.Duration `json:"coolDown,omitzero"`
	// Guard is a PodDisruptionBudget in the check's namespace, such as that of etcd's members. No
	// Machine is marked without whose host fewer of its Pods may be healthy than it wants.
	Guard string `json:"guard,omitempty"`
}

// DefaultSettings returns the options of the health check that seed 002 assumes.
func DefaultSettings() Settings { return Settings{} }

// Reconciler is the health check. All fields but Warn must be set.
type Reconciler struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server. The cache only proposes: one that lags would
	// let too many Machines be marked, or by a check that its user has paused or tightened, and
	// what it says of one Machine be undone by what is so, again and again, while another waits
	// for its mark.
	Live client.Reader
	// Clock is for its own records, and Steady for how long it has seen something. Others write by
	// clocks of their own.
	Clock, Steady clock.PassiveClock
	// Warn reports a MachineHealthCheck that can't be acted on; may be nil.
	Warn     func(about client.Object, reason, message string)
	Settings Settings
	// Decide is the function Decide, or a wrong one to be tested against.
	Decide func(State) Action

	mutex  sync.Mutex
	warned map[warning]int64 // generation
	// sights is when it saw conditions that others have written, and starts what it saw of hosts.
	starts map[string]start
	sights map[sight]seen
	// marked is when it marked Machines: a remediation may be over before it looks again, and then
	// what is on record is about an older start.
	marked map[types.UID]mark
	// crowds are by check.
	crowds map[types.UID]*crowd
	// looked is when a check with Machines in remediation was looked at last in the API
	// server, or when its cache showed the first of them.
	looked map[types.UID]time.Time
}

// sight is a condition, and about the kind, the name and the UID of whatever has it. Is has its
// status and the time of its transition, which distinguish it from the one before.
type sight struct{ about, condition, is string }

// start is the last power-on of a host, by its own record, when this process looked last, and when
// it saw the host last without that.
type start struct {
	poweredOn     *metav1.MicroTime
	last, without time.Time
}

// seen is when there was such a condition first, and last.
type seen struct{ first, last time.Time }

// crowd says whether too many Machines were unhealthy when a check was looked at last, and
// since when they aren't.
type crowd struct {
	tooMany bool
	over    time.Time
}

// mark is one that this process has given a Machine of that version, or perhaps has, if it was told
// that it failed.
type mark struct {
	at      time.Time
	version string
}

// What is read is shared with the cache and never changed: a reconcile looks at
// every Machine of the check, and copying them all would be most of its work.

// target is a Machine that a MachineHealthCheck selects.
type target struct {
	machine *clusterv1.Machine
	state   State
	// deadline is when it will be Expired; zero if it is or nothing runs out.
	deadline time.Time
	// hostless says that it names no BareMetalHost that exists, so that nobody can
	// remediate it.
	hostless bool
	// sharer says who else may have its Node, if anybody.
	sharer string
}

// Reconcile does one step for one of the Machines of a MachineHealthCheck.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	check, err := r.check(ctx, r.Client, request.NamespacedName)
	if check == nil {
		return reconcile.Result{}, err
	}
	seen, err := r.assess(ctx, false, check)
	overdue := r.overdue(check.UID, len(seen.remediating) > 0)
	live := err == nil && (seen.action != Nothing || overdue)
	if live {
		if check, err = r.check(ctx, r.Live, request.NamespacedName); check == nil {
			return reconcile.Result{}, err
		}
		seen, err = r.assess(ctx, true, check)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("assess MachineHealthCheck %s: %w", request, err)
	}
	err = r.act(ctx, seen.next, seen.action)
	if seen.action == Mark {
		r.noteMark(seen.next.machine)
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("%s of Machine %s: %w", seen.action, client.ObjectKeyFromObject(seen.next.machine), err)
	}
	if seen.action == Mark {
		seen.remediating = append(seen.remediating, seen.next)
	}
	for _, t := range seen.shared {
		r.warn(t.machine, api.NodeUnproven, fmt.Sprintf("the Node %s, which status.nodeRef of the Machine names, is unhealthy, and %s: to fence one host proves nothing about the other, so the Machine is not marked before the other one's Node has a name of its own",
			t.machine.Status.NodeRef.Name, t.sharer))
	}
	for _, t := range seen.remediating {
		if live && t.hostless {
			r.warn(t.machine, "NoSuchHost", fmt.Sprintf("the Machine is to be remediated, and its annotation %s is %q, which names no BareMetalHost: correct it, or nobody can",
				api.HostAnnotation, api.Shorten(t.machine.Annotations[api.HostAnnotation])))
		}
	}
	return reconcile.Result{RequeueAfter: seen.after}, nil
}

// check returns a MachineHealthCheck as a reader shows it, and nil if there is none, or none to act
// on.
func (r *Reconciler) check(ctx context.Context, reader client.Reader, name client.ObjectKey) (*clusterv1.MachineHealthCheck, error) {
	var check clusterv1.MachineHealthCheck
	if err := reader.Get(ctx, name, &check, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if _, paused := check.Annotations[clusterv1.PausedAnnotation]; paused || r.refuse(&check) {
		return nil, nil
	}
	return &check, nil
}

// outlook is what a check is like.
type outlook struct {
	// next is the first Machine that something is to be done about, and action what.
	next   target
	action Action
	// after is how long it is until the next deadline.
	after       time.Duration
	remediating []target
	// shared would be marked, but for whoever shares their Nodes.
	shared []target
}

// assess looks at a check in the API server, if live, or else in the cache.
func (r *Reconciler) assess(ctx context.Context, live bool, check *clusterv1.MachineHealthCheck) (outlook, error) {
	targets, others, err := r.targets(ctx, live, check)
	if err != nil {
		return outlook{}, err
	}
	// A Machine whose time has not expired yet is no capacity either.
	unhealthy := 0
	for i := range targets {
		if s := &targets[i].state; s.Remediating || s.Missing || s.Sick {
			unhealthy++
		}
	}
	least, most, err := actsOn(check, len(targets))
	if err != nil {
		return outlook{}, err
	}
	guard := noGuard
	if live && r.Settings.Guard != "" {
		if guard, err = r.guard(ctx, check.Namespace, others); err != nil {
			return outlook{}, err
		}
	}
	seen := outlook{action: Nothing}
	calm := r.untilCalm(check.UID, unhealthy > most)
	for _, t := range targets {
		t.state.Calm = calm <= 0
		t.state.Allowed = least <= unhealthy && unhealthy <= most
		if t.state.Guarded = guard(t.machine.Status.NodeRef.Name); (t.state.Guarded || t.state.Shared) && t.state.Expired && (seen.after == 0 || lookAgain < seen.after) {
			seen.after = lookAgain
		}
		if t.state.Shared {
			seen.shared = append(seen.shared, t)
		}
		if t.state.Remediating {
			seen.remediating = append(seen.remediating, t)
		}
		if seen.action == Nothing {
			if seen.action = r.Decide(t.state); seen.action != Nothing {
				seen.next = t
			}
		}
		if !t.deadline.IsZero() {
			// It may have come since the Nodes were asked for.
			if left := max(t.deadline.Sub(r.Steady.Now()), time.Millisecond); seen.after == 0 || left < seen.after {
				seen.after = left
			}
		}
	}
	if calm > 0 && (seen.after == 0 || calm < seen.after) {
		seen.after = calm
	}
	return seen, nil
}

// since returns when this process saw s first, which is now if it had not: one that starts counts
// anew.
func (r *Reconciler) since(s sight, now time.Time) time.Time {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.sights[s]
	if !ok {
		known.first = now
		maps.DeleteFunc(r.sights, func(_ sight, old seen) bool { return now.Sub(old.last) > forgotten })
	}
	if r.sights == nil {
		r.sights = map[sight]seen{}
	}
	known.last = now
	r.sights[s] = known
	return known.first
}

// forgotten is when a mark, or a sight, is too old to matter: no Node takes as long to start.
const forgotten = 24 * time.Hour

// noteMark remembers that a Machine was marked just now, or perhaps.
func (r *Reconciler) noteMark(machine *clusterv1.Machine) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.Steady.Now()
	maps.DeleteFunc(r.marked, func(_ types.UID, m mark) bool { return now.Sub(m.at) > forgotten })
	if r.marked == nil {
		r.marked = map[types.UID]mark{}
	}
	r.marked[machine.UID] = mark{now, machine.ResourceVersion}
}

// lastMark is when this process marked a Machine last; zero if it hasn't, as a Machine shows that
// nobody has written since.
func (r *Reconciler) lastMark(machine *clusterv1.Machine) time.Time {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if m := r.marked[machine.UID]; m.version != machine.ResourceVersion {
		return m.at
	}
	return time.Time{}
}

// overdue reports whether a check whose cache shows Machines in remediation has to be
// looked at in the API server.
func (r *Reconciler) overdue(check types.UID, remediating bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !remediating {
		delete(r.looked, check)
		return false
	}
	now := r.Steady.Now()
	last, ok := r.looked[check]
	if ok && now.Sub(last) < lookAgain {
		return false
	}
	if r.looked == nil {
		r.looked = map[types.UID]time.Time{}
	}
	r.looked[check] = now
	return ok
}

// untilCalm is how long it takes until Machines may be marked again after too many of them
// were unhealthy.
func (r *Reconciler) untilCalm(check types.UID, tooMany bool) time.Duration {
	if r.Settings.CoolDown.Duration <= 0 {
		return 0
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.Steady.Now()
	if r.crowds == nil {
		r.crowds = map[types.UID]*crowd{}
	}
	was := r.crowds[check]
	if was == nil {
		was = &crowd{tooMany: true}
		r.crowds[check] = was
	}
	if was.tooMany || tooMany || now.Before(was.over) {
		was.tooMany, was.over = tooMany, now
	}
	return r.Settings.CoolDown.Duration - now.Sub(was.over)
}

// targets are the Machines that a MachineHealthCheck selects, in order of their
// names. It returns what was read beside them as well.
func (r *Reconciler) targets(ctx context.Context, live bool, check *clusterv1.MachineHealthCheck) ([]target, others, error) {
	var reader client.Reader = r.Client
	if live {
		reader = r.Live
	}
	selector, err := selectorOf(check)
	if err != nil {
		return nil, others{}, fmt.Errorf("parse its selector: %w", err)
	}
	var machines clusterv1.MachineList
	if err := reader.List(ctx, &machines, client.InNamespace(check.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, others{}, fmt.Errorf("list its Machines: %w", err)
	}
	beside, err := r.readOthers(ctx, reader)
	if err != nil {
		return nil, others{}, err
	}
	beside.live, beside.machines = live, machines.Items
	targets := make([]target, 0, len(machines.Items))
	for i := range machines.Items {
		machine := &machines.Items[i]
		if !selects(check, selector, machine) {
			continue
		}
		t := target{machine: machine, hostless: beside.host(machine) == nil}
		r.examine(beside, check, &t)
		if live && t.state.Expired && !t.state.Missing {
			t.sharer = api.SharerAmong(machine, beside.nodes[machine.Status.NodeRef.Name], beside.host(machine), machines.Items, beside.hosts)
			t.state.Shared = t.sharer != ""
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b target) int { return strings.Compare(a.machine.Name, b.machine.Name) })
	return targets, beside, nil
}

// selectorOf is the selector of a check. Most have labels only, which need not be
// parsed again in every reconcile.
func selectorOf(check *clusterv1.MachineHealthCheck) (labels.Selector, error) {
	if selector := &check.Spec.Selector; len(selector.MatchExpressions) == 0 && len(selector.MatchLabels) > 0 {
		return labels.SelectorFromValidatedSet(selector.MatchLabels), nil
	}
	return metav1.LabelSelectorAsSelector(&check.Spec.Selector)
}

func selects(check *clusterv1.MachineHealthCheck, selector labels.Selector, machine *clusterv1.Machine) bool {
	_, skip := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	_, paused := machine.Annotations[clusterv1.PausedAnnotation]
	return !skip && !paused && machine.DeletionTimestamp == nil &&
		machine.Spec.ClusterName == check.Spec.ClusterName && selector.Matches(labels.Set(machine.Labels))
}

// others is what a check must know beside its Machines.
type others struct {
	// asked is when the Nodes were asked for: what is read next may be late, and a condition
	// has lasted no longer than it had then. Wall was the time on the clock then.
	asked, wall time.Time
	// answered is when the Nodes were known: a condition that is new may be as young as that.
	answered time.Time
	nodes    map[string]*corev1.Node
	// live says that all this was read from the API server.
	live bool
	// machines are all of the check's namespace.
	machines []clusterv1.Machine
	// held are the hosts that are being remediated, as Machines name them.
	held  []string
	hosts []api.BareMetalHost
	named map[string]*api.BareMetalHost // as Machines do
}

func (r *Reconciler) readOthers(ctx context.Context, reader client.Reader) (others, error) {
	o := others{asked: r.Steady.Now(), wall: r.Clock.Now()}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return others{}, fmt.Errorf("list the Nodes: %w", err)
	}
	o.answered, o.nodes = r.Steady.Now(), make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		o.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	var hosts api.BareMetalHostList
	if err := reader.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return others{}, fmt.Errorf("list the BareMetalHosts: %w", err)
	}
	o.hosts, o.named = hosts.Items, make(map[string]*api.BareMetalHost, len(hosts.Items))
	for i := range hosts.Items {
		o.named[hosts.Items[i].Namespace+"/"+hosts.Items[i].Name] = &hosts.Items[i]
		if _, held := hosts.Items[i].Annotations[api.RemediationRebootAnnotation]; held {
			o.held = append(o.held, hosts.Items[i].Namespace+"/"+hosts.Items[i].Name)
		}
	}
	return o, nil
}

// host is the one that a Machine names, or nil.
func (o others) host(machine *clusterv1.Machine) *api.BareMetalHost {
	return o.named[machine.Annotations[api.HostAnnotation]]
}

// examine gathers the facts about one Machine.
func (r *Reconciler) examine(o others, check *clusterv1.MachineHealthCheck, t *target) {
	s := &t.state
	s.Remediating = o.remediating(t.machine)
	var since time.Time
	s.Recorded, since = recorded(t.machine)

	// Nothing that was so before the start-up counts: neither the absence of a
	// Node nor what the host's last boot left in it.
	startup := defaultStartup
	if seconds := check.Spec.Checks.NodeStartupTimeoutSeconds; seconds != nil {
		startup = time.Duration(*seconds) * time.Second
	}
	now, lastStart := o.asked, r.lastStart(o, t.machine)
	var started time.Time
	if s.Recorded == Waiting && startup > 0 { // by its own clock, perhaps in an earlier life
		started = now.Add(since.Add(startup).Sub(o.wall))
		if first := r.since(sight{"Machine/" + string(t.machine.UID), string(Waiting), since.String()}, now); first.After(started) {
			started = first.Add(startup) // an earlier life may have marked it, and died before it recorded that
		}
	}

	node := o.nodes[t.machine.Status.NodeRef.Name] // a Machine without one names none
	if node != nil && node.Status.NodeInfo.BootID == "" {
		node = nil // somebody has made it, and no kubelet has registered yet: that takes a boot
	}
	s.Missing = node == nil
	switch {
	case s.Remediating:
		t.deadline = now.Add(lookAgain)
		return
	case s.Missing && t.machine.Status.NodeRef.IsDefined() && r.Settings.MissingNodeUnhealthyAtOnce:
		s.Expired = true
		return
	case s.Missing:
		if t.deadline = started; !started.IsZero() {
			t.deadline = later(started, later(lastStart, r.lastMark(t.machine)).Add(startup))
		}
	default:
		t.deadline = r.sickUntil(check, t.machine, node, o.answered)
		if s.Sick = !t.deadline.IsZero(); s.Sick && t.deadline.Before(started) {
			t.deadline = started
		}
	}
	if !t.deadline.IsZero() && !now.Before(t.deadline) {
		s.Expired, t.deadline = true, time.Time{}
	}
}

// lastStart is when the start of a Machine's host began at the earliest: its last power-on, or now
// while it is off for a request. A remediation may have come and gone while this controller was
// away, so that its condition is about an older start. When the host was powered on is on record by
// another clock, but not before this process saw it last without; one that starts counts anew.
func (r *Reconciler) lastStart(o others, machine *clusterv1.Machine) time.Time {
	found := o.host(machine)
	if found == nil {
		return time.Time{}
	}
	host := &found.Status.Provisioning
	without := r.without(machine.Annotations[api.HostAnnotation], host.LastPoweredOn, o)
	switch {
	case host.RebootPending(), len(host.HeldOffFor) > 0:
		return o.asked
	case host.LastPoweredOn == nil:
		return time.Time{}
	case host.LastPoweredOn.After(o.wall): // another clock's mistake
		return without
	}
	return later(without, o.asked.Add(host.LastPoweredOn.Sub(o.wall)))
}

// without returns when this process saw a host last that had not been powered on at this time. A
// cache may show what has long been over, so only the first look may be at one.
func (r *Reconciler) without(host string, poweredOn *metav1.MicroTime, o others) time.Time {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.starts[host]
	if ok && !o.live {
		return known.without
	}
	switch {
	case !ok:
		known.without = o.asked
		maps.DeleteFunc(r.starts, func(_ string, old start) bool { return o.asked.Sub(old.last) > forgotten })
	case !known.poweredOn.Equal(poweredOn):
		known.without = known.last
	}
	if r.starts == nil {
		r.starts = map[string]start{}
	}
	known.poweredOn, known.last = poweredOn, o.asked
	r.starts[host] = known
	return known.without
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remediating reports whether a Machine is marked, or its host not let go of yet.
func (o others) remediating(machine *clusterv1.Machine) bool {
	_, marked := machine.Annotations[api.ExternalRemediationAnnotation]
	return marked || slices.Contains(o.held, machine.Annotations[api.HostAnnotation])
}

// leaves reports whether a Machine's host is about to go off, or off: it is fenced, its Machine is
// in deletion, or its user has it rebooted or wants it off.
func (o others) leaves(machine *clusterv1.Machine) bool {
	if machine.DeletionTimestamp != nil || o.remediating(machine) {
		return true
	}
	host := o.host(machine)
	return host != nil && (!host.Spec.Online || len(api.RebootRequests(host.Annotations)) > 0)
}

// recorded reads the verdict from a Machine's condition.
func recorded(machine *clusterv1.Machine) (Verdict, time.Time) {
	for _, c := range machine.Status.Conditions {
		if c.Type != clusterv1.MachineHealthCheckSucceededCondition {
			continue
		}
		switch c.Status {
		case metav1.ConditionUnknown:
			return Waiting, c.LastTransitionTime.Time
		case metav1.ConditionFalse:
			return Unhealthy, c.LastTransitionTime.Time
		}
	}
	return Healthy, time.Time{}
}

// sickUntil is when the first unhealthy condition of a Machine or its Node has
// lasted for too long; zero if they have none.
func (r *Reconciler) sickUntil(check *clusterv1.MachineHealthCheck, machine *clusterv1.Machine, node *corev1.Node, now time.Time) time.Time {
	var first time.Time
	lasts := func(of client.Object, condition, status string, transition metav1.Time, timeoutSeconds *int32) {
		deadline := r.since(sight{fmt.Sprintf("%T/%s/%s", of, of.GetName(), of.GetUID()), condition, status + " " + transition.String()}, now)
		if timeoutSeconds != nil {
			deadline = deadline.Add(time.Duration(*timeoutSeconds) * time.Second)
		}
		if first.IsZero() || deadline.Before(first) {
			first = deadline
		}
	}
	for _, sick := range check.Spec.Checks.UnhealthyNodeConditions {
		for _, c := range node.Status.Conditions {
			if c.Type == sick.Type && c.Status == sick.Status {
				lasts(node, string(c.Type), string(c.Status), c.LastTransitionTime, sick.TimeoutSeconds)
			}
		}
	}
	for _, sick := range check.Spec.Checks.UnhealthyMachineConditions {
		for _, c := range machine.Status.Conditions {
			if c.Type == sick.Type && c.Status == sick.Status {
				lasts(machine, c.Type, string(c.Status), c.LastTransitionTime, sick.TimeoutSeconds)
			}
		}
	}
	return first
}

// actsOn is how many of total Machines have to be unhealthy for any of them to be
// marked: at least, and at most. A percentage is rounded down. A range takes the
// place of the plain limit, as in Cluster API.
func actsOn(check *clusterv1.MachineHealthCheck, total int) (least, most int, err error) {
	trigger := &check.Spec.Remediation.TriggerIf
	if trigger.UnhealthyInRange != "" {
		return parseRange(trigger.UnhealthyInRange)
	}
	if trigger.UnhealthyLessThanOrEqualTo == nil {
		return 0, total, nil
	}
	most, err = intstr.GetScaledValueFromIntOrPercent(trigger.UnhealthyLessThanOrEqualTo, total, false)
	if err != nil {
		return 0, 0, fmt.Errorf("parse unhealthyLessThanOrEqualTo: %w", err)
	}
	return 0, most, nil
}

// parseRange reads a range such as [2-3].
func parseRange(text string) (least, most int, err error) {
	from, to, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), "-")
	least, errLeast := strconv.Atoi(from)
	most, errMost := strconv.Atoi(to)
	if !ok || errLeast != nil || errMost != nil || text != fmt.Sprintf("[%s-%s]", from, to) || least < 0 {
		return 0, 0, fmt.Errorf("unhealthyInRange %q is not a range such as [2-3]", text)
	}
	if least > most {
		return 0, 0, fmt.Errorf("unhealthyInRange %s is an empty range: its first number is greater than its second", text)
	}
	return least, most, nil
}

// act has the one effect of an action.
func (r *Reconciler) act(ctx context.Context, t target, action Action) error {
	switch action {
	case Mark: // and nobody takes it for the mark before, whose fencing may not be over
		return r.Client.Patch(ctx, t.machine.DeepCopy(), api.SetAnnotation(t.machine, api.ExternalRemediationAnnotation, "", api.MarkedBootAnnotation, api.PoweredOffForRemediationAnnotation))
	case RecordHealthy:
		return r.record(ctx, t.machine, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)
	case RecordWaiting:
		return r.record(ctx, t.machine, metav1.ConditionUnknown, waitingReason)
	case RecordUnhealthy:
		reason := clusterv1.MachineHealthCheckUnhealthyNodeReason
		if t.state.Missing {
			reason = clusterv1.MachineHealthCheckNodeDeletedReason
		}
		return r.record(ctx, t.machine, metav1.ConditionFalse, reason)
	}
	return nil
}

func (r *Reconciler) record(ctx context.Context, machine *clusterv1.Machine, status metav1.ConditionStatus, reason string) error {
	condition := metav1.Condition{
		Type:               clusterv1.MachineHealthCheckSucceededCondition,
		Status:             status,
		Reason:             reason,
		ObservedGeneration: machine.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	conditions := slices.DeleteFunc(slices.Clone(machine.Status.Conditions), func(c metav1.Condition) bool {
		return c.Type == condition.Type
	})
	conditions = append(conditions, condition)
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	data, err := json.Marshal(conditions)
	if err != nil {
		return err
	}
	return r.Client.Status().Patch(ctx, machine.DeepCopy(), api.SetStatus(machine, `"conditions":`+string(data)))
}

// refuse reports whether a MachineHealthCheck asks for something that this
// controller doesn't do or can't read, and says so once. Half of a check would mark Machines
// that the whole would not.
func (r *Reconciler) refuse(check *clusterv1.MachineHealthCheck) bool {
	reason, message := "", ""
	if check.Spec.Remediation.TemplateRef.IsDefined() {
		reason, message = "NotSupported", "spec.remediation.templateRef is not supported"
	} else if _, _, err := actsOn(check, 0); err != nil {
		reason, message = "Invalid", "spec.remediation.triggerIf: "+err.Error()
	} else if _, err := selectorOf(check); err != nil {
		reason, message = "Invalid", "spec.selector: "+err.Error()
	} else {
		return false
	}
	r.warn(check, reason, message+": no Machine is marked for this check until that is changed")
	return true
}

// warning is a problem of one object.
type warning struct {
	about  types.UID
	reason string
}

// warn tells the users of an object about a problem, once in each generation of it.
func (r *Reconciler) warn(about client.Object, reason, message string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	said := warning{about.GetUID(), reason}
	if generation, ok := r.warned[said]; r.Warn != nil && (!ok || generation != about.GetGeneration()) {
		if r.warned == nil {
			r.warned = map[warning]int64{}
		}
		r.warned[said] = about.GetGeneration()
		r.Warn(about, reason, message)
	}
}

// ChecksOf maps a Machine, a Node or a BareMetalHost to every MachineHealthCheck:
// there are few of them.
func ChecksOf(ctx context.Context, reader client.Reader, _ client.Object) []reconcile.Request {
	var checks clusterv1.MachineHealthCheckList
	if err := reader.List(ctx, &checks, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has not synced: it brings every check when it has
	}
	var requests []reconcile.Request
	for i := range checks.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&checks.Items[i])})
	}
	slices.SortFunc(requests, func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
	return requests
}

// ChecksOfHost maps a host to the checks while it is being remediated: nothing
// else about a host matters to them. A map function sees a host before and after
// each change, so that the end of a remediation is seen as well.
func ChecksOfHost(ctx context.Context, reader client.Reader, host client.Object) []reconcile.Request {
	if _, remediated := host.GetAnnotations()[api.RemediationRebootAnnotation]; !remediated {
		return nil
	}
	return ChecksOf(ctx, reader, host)
}
