package reboot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Power commands the power of a host through its BMC. Every call is bounded in time. A command
// that returns nil was accepted, not completed. A command that the BMC answered and did not accept
// fails with ErrRefused, and if the BMC can never carry it out for this host with
// errors.ErrUnsupported too. A command that never got so far fails with ErrNotNow. After any other
// error it may have been accepted, and may still be carried out.
type Power interface {
	// State asks the BMC for the power state; it returns On or Off, never
	// Unreachable, unless it fails.
	State(ctx context.Context, host *api.BareMetalHost) (PowerState, error)
	// On powers the host on.
	On(ctx context.Context, host *api.BareMetalHost) error
	// ShutDown asks the host's operating system to shut down.
	ShutDown(ctx context.Context, host *api.BareMetalHost) error
	// Off cuts the power.
	Off(ctx context.Context, host *api.BareMetalHost) error
}

// ErrRefused is the error of a command that the BMC did not accept, and will not
// carry out.
var ErrRefused = errors.New("the BMC refused it")

// ErrNotNow is the error of a command that will not be carried out, and can be given again: a
// service before the BMC has turned it down, for example because it is busy. That says nothing
// about the host, since the BMC was not asked.
var ErrNotNow = errors.New("it was not accepted")

// StatusError converts err, the error of a request that was answered with an HTTP status code, to
// the error that Power has to return. With a conflict, the BMC has seen the request and knows that
// the host's state doesn't fit it. With other codes, such as those of an overload, it is unknown
// how far the request came.
func StatusError(code int, err error) error {
	switch code {
	case http.StatusConflict:
		return fmt.Errorf("%w: %w", err, ErrRefused)
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return fmt.Errorf("%w: %w: %w", err, ErrRefused, errors.ErrUnsupported)
	}
	return err
}

// Reconciler is the reboot controller. All fields but Warn must be set. It may
// be used for several hosts at once, but for one host only once at a time, as
// controller-runtime's queues guarantee.
type Reconciler struct {
	// Client writes.
	Client client.Client
	// Live reads from the API server, never from a cache: a pending reboot that
	// is over already would cut the power of the freshly booted host.
	Live client.Reader
	// Clock shows the time, as the status has it. Steady measures how long something takes that
	// this process has seen itself: setting the clock doesn't move it.
	Clock, Steady clock.PassiveClock
	Power         Power
	// Warn reports a problem with an object to its users; may be nil.
	Warn     func(about client.Object, reason, message string)
	Settings Settings
	// Decide is the function Decide, or a wrong one to be tested against.
	Decide func(State) Action

	mutex sync.Mutex
	hosts map[types.NamespacedName]*memory
}

// memory is the controller's memory of a host. It may be lost at any time: all that a reboot needs
// to be exact is in the host's status.
type memory struct {
	uid types.UID
	// goal is the pendingRebootSince that the host goes off for; zero when it
	// goes off because it should not be online.
	goal time.Time
	// since is when this process first wanted the boot that runs to go off for
	// that goal, and again says that it has seen the host off for it before: then
	// the host came on by itself, and this boot is shut down like any other.
	// Age is how long the goal had been on record then.
	since                     time.Time
	age                       time.Duration
	again                     bool
	shutDownSent, softRefused bool
	// shown is the last boot that was seen on, recorded the last one that this process recorded,
	// and onSent whether it has tried to send a PowerOn since.
	shown, recorded time.Time
	onSent          bool
	// offAnswered is when the BMC first answered a PowerOff since a boot was recorded or a PowerOn
	// sent. Even a refused PowerOff reached the BMC after that PowerOn.
	offAnswered time.Time
	// boot is a recorded boot, bootSeen when this process saw it first, and bootAge how long it had
	// been on record then.
	boot, bootSeen time.Time
	bootAge        time.Duration
	// command is the last power command that was accepted, or may have been, and commanded its
	// time.
	command   Action
	commanded time.Time
	// failures counts the BMC's failures in a row, the last being failure.
	// readFailed says that it was the reading that failed.
	// busy says that it was a command that can be given again at once.
	failures   int
	failure    string
	readFailed bool
	busy       bool
	// warned has the annotation values that were reported.
	warned map[string]string
}

// Reconcile does one step for one host.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var host api.BareMetalHost
	if err := r.Live.Get(ctx, request.NamespacedName, &host, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read BareMetalHost %s: %w", request, err)
	}
	m := r.remember(&host)
	state := r.observe(ctx, &host, m)
	action := r.Decide(state)
	if err := r.act(ctx, &host, m, action); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("%s of BareMetalHost %s: %w", action, request, err)
	}
	return r.after(state, m, action), nil
}

// observe gathers the facts.
func (r *Reconciler) observe(ctx context.Context, host *api.BareMetalHost, m *memory) State {
	provisioning := &host.Status.Provisioning
	s := State{
		Online:   host.Spec.Online,
		StatusOn: host.Status.PoweredOn,
		Power:    Unreachable,
		Pending:  provisioning.RebootPending(),
	}
	s.Provisioned = host.ProvisioningState().Provisioned()
	switch host.ProvisioningState() {
	case api.StateDeprovisioning, api.StateAvailable:
		// Available too, lest a host that was deprovisioned unseen takes an old request into its
		// next life.
		s.Deprovisioned = true
	}
	requests := api.RebootRequests(host.Annotations)
	for _, request := range requests {
		s.Plain = s.Plain || request.Key == ""
		s.Keyed = s.Keyed || request.Key != ""
		s.Hard = s.Hard || request.Mode == api.RebootHard
		r.complain(host, m, request)
	}
	if !s.Provisioned {
		return s
	}
	if power, err := r.Power.State(ctx, host); err != nil {
		m.fail(fmt.Errorf("read the power state: %w", err), true)
	} else {
		s.Power = power
		if m.readFailed {
			m.succeed()
		}
	}
	wall, now := r.Clock.Now(), r.Steady.Now()
	if booted := provisioning.LastPoweredOn; booted != nil {
		calledOff := !m.offAnswered.IsZero() && now.Sub(m.offAnswered) >= r.Settings.CommandInterval.Duration
		// An answer that stands was given after that boot had been seen or called off,
		// which a process that crashed since doesn't remember.
		over := calledOff || len(provisioning.HeldOffFor) > 0
		switch {
		case s.StatusOn:
			m.shown = booted.Time
		case !s.Pending && !m.shown.Equal(booted.Time) && !over:
			s.BootRecorded = m.sinceBoot(booted.Time, wall, now) < r.Settings.BootTimeout.Duration
			s.OnSent = m.onSent || !m.recorded.Equal(booted.Time)
		}
	}
	s.Unanswered = !maps.Equal(provisioning.HeldOffFor, answers(requests))
	switch {
	case !s.Pending && s.Online:
		m.since, m.again = time.Time{}, false
	case s.Power == Off:
		m.since, m.again = time.Time{}, true
	default:
		var goal time.Time
		if s.Pending {
			goal = provisioning.PendingRebootSince.Time
		}
		m.aim(goal, wall, now)
		s.ShutDownSent = m.shutDownSent
		s.SoftFailed = m.softRefused || now.Sub(m.since)+m.age >= r.Settings.SoftTimeout.Duration
	}
	expected := PowerOn
	if s.Power == On || s.CallsOff() {
		expected = PowerOff
	}
	s.Commanded = m.command == expected && now.Sub(m.commanded) < r.Settings.CommandInterval.Duration
	s.ErrorStale = m.stale(&host.Status)
	return s
}

// answers returns the heldOffFor of a host that was found off: an answer to each keyed annotation.
// It is nil without any.
func answers(requests []api.RebootRequest) map[string]string {
	var ids map[string]string
	for _, request := range requests {
		if request.Key == "" {
			continue
		}
		if ids == nil {
			ids = make(map[string]string)
		}
		ids[request.Key] = request.ID
	}
	return ids
}

// act has the one effect of an action.
func (r *Reconciler) act(ctx context.Context, host *api.BareMetalHost, m *memory, action Action) error {
	switch action {
	case ClearAnnotations:
		var keys []string
		for _, request := range api.RebootRequests(host.Annotations) {
			keys = append(keys, request.Annotation)
		}
		return r.Client.Patch(ctx, host, api.RemoveAnnotations(host, keys...))
	case RemovePlain:
		return r.Client.Patch(ctx, host, api.RemoveAnnotations(host, api.RebootAnnotation))
	case ForgetRequest:
		return r.setStatus(ctx, host, `"provisioning":{"pendingRebootSince":null,"heldOffFor":null}`)
	case RecordPower:
		m.succeed() // it moved, whatever was said to the last command
		m.command = ""
		on := !host.Status.PoweredOn
		held := "null"
		if !on {
			held = answerStatus(host)
		}
		return r.setStatus(ctx, host, `"poweredOn":`+strconv.FormatBool(on)+`,"provisioning":{"heldOffFor":`+held+`}`)
	case RecordAnswer:
		return r.setStatus(ctx, host, `"provisioning":{"heldOffFor":`+answerStatus(host)+`}`)
	case RecordPending:
		since := r.later(host.Status.Provisioning.LastPoweredOn)
		m.aim(since, since, r.Steady.Now())
		return r.setStatus(ctx, host, `"provisioning":{"pendingRebootSince":"`+since.Format(metav1.RFC3339Micro)+`"}`)
	case RecordBoot:
		booted := r.later(host.Status.Provisioning.PendingRebootSince, host.Status.Provisioning.LastPoweredOn)
		m.recorded, m.onSent, m.offAnswered = booted, false, time.Time{}
		return r.setStatus(ctx, host, `"provisioning":{"lastPoweredOn":"`+booted.Format(metav1.RFC3339Micro)+`","heldOffFor":null}`)
	case RecordError:
		return r.setStatus(ctx, host, m.errorStatus())
	case PowerOn, ShutDown, PowerOff:
		// No BMC takes a condition with a command, and its reading may have taken
		// long: the decision must still be about the host as it is.
		var now api.BareMetalHost
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(host), &now, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		if now.ResourceVersion != host.ResourceVersion {
			return errors.New("the host changed while its BMC was read")
		}
		r.command(ctx, host, m, action)
	case Nothing:
		m.succeed() // whatever failed is not wanted any more
	}
	return nil
}

// answerStatus returns the merge patch of heldOffFor that answers the keyed annotations of a host
// which is off, and withdraws every other answer.
func answerStatus(host *api.BareMetalHost) string {
	want := answers(api.RebootRequests(host.Annotations))
	if want == nil {
		return "null"
	}
	entries := make([]string, 0, len(want))
	for key, id := range want { // order does not matter: sorted below
		entries = append(entries, api.Quote(key)+":"+api.Quote(id))
	}
	for key := range host.Status.Provisioning.HeldOffFor { // order does not matter: sorted below
		if _, ok := want[key]; !ok {
			entries = append(entries, api.Quote(key)+":null")
		}
	}
	slices.Sort(entries)
	return "{" + strings.Join(entries, ",") + "}"
}

// command commands the BMC. A failure is the BMC's, and kept for the status, not an error of the
// controller.
func (r *Reconciler) command(ctx context.Context, host *api.BareMetalHost, m *memory, action Action) {
	call := r.Power.Off
	switch action {
	case PowerOn:
		call = r.Power.On
	case ShutDown:
		call = r.Power.ShutDown
	}
	if action == PowerOn {
		m.onSent, m.offAnswered = true, time.Time{}
	}
	err := call(ctx, host)
	now, refused := r.Steady.Now(), errors.Is(err, ErrRefused)
	m.busy = errors.Is(err, ErrNotNow)
	if action == PowerOff && (err == nil || refused) && m.offAnswered.IsZero() {
		m.offAnswered = now
	}
	if !refused && !m.busy {
		// A command that may have been accepted is given as long as one that was:
		// sent again too soon, it could hit the next boot.
		m.command, m.commanded = action, now
	}
	switch {
	case err == nil:
		m.succeed()
		m.shutDownSent = m.shutDownSent || action == ShutDown
	case action == ShutDown && errors.Is(err, errors.ErrUnsupported):
		m.softRefused = true
	default:
		m.fail(fmt.Errorf("%s: %w", action, err), false)
	}
}

// after returns when to look at the host again. A write brings its own watch event, but power
// management doesn't rely on a watch that may lag: it looks again by itself.
func (r *Reconciler) after(s State, m *memory, action Action) reconcile.Result {
	switch {
	case !s.Provisioned && action == Nothing:
		return reconcile.Result{}
	case m.failures > 0 && !m.busy && action != RecordError:
		return reconcile.Result{RequeueAfter: r.backoff(m.failures)}
	case action == Nothing:
		return reconcile.Result{RequeueAfter: r.Settings.SteadyInterval.Duration}
	}
	return reconcile.Result{RequeueAfter: r.Settings.PollInterval.Duration}
}

func (r *Reconciler) backoff(failures int) time.Duration {
	wait, most := r.Settings.PollInterval.Duration, r.Settings.MaxBackoff.Duration
	for ; failures > 1 && wait < most; failures-- {
		wait *= 2
	}
	return min(wait, most)
}

func (r *Reconciler) setStatus(ctx context.Context, host *api.BareMetalHost, fields string) error {
	return r.Client.Status().Patch(ctx, host, api.SetStatus(host, fields))
}

// later returns the present time, or one later than the given times of the host, whatever clocks
// those were taken from. Otherwise a request could be answered before it was made, or never, and a
// boot be taken for the previous one, which has been seen.
func (r *Reconciler) later(others ...*metav1.MicroTime) time.Time {
	now := r.Clock.Now()
	for _, other := range others {
		if other != nil && now.Sub(other.Time) < time.Microsecond {
			now = other.Add(time.Microsecond)
		}
	}
	return now.UTC().Truncate(time.Microsecond) // as the API keeps it
}

// complain reports, once, a value that could not be parsed.
func (r *Reconciler) complain(host *api.BareMetalHost, m *memory, request api.RebootRequest) {
	if request.Problem == "" || r.Warn == nil {
		return
	}
	value := host.Annotations[request.Annotation]
	if known, ok := m.warned[request.Annotation]; ok && known == value {
		return
	}
	if m.warned == nil {
		m.warned = map[string]string{}
	}
	m.warned[request.Annotation] = value
	r.Warn(host, "RebootAnnotationNotUnderstood", request.Problem)
}

// mostFailures bounds a number that anybody may have written.
const mostFailures = 1 << 20

func (r *Reconciler) remember(host *api.BareMetalHost) *memory {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	key := client.ObjectKeyFromObject(host)
	m := r.hosts[key]
	if m == nil || m.uid != host.UID {
		m = &memory{uid: host.UID}
		if host.Status.ErrorType == api.PowerManagementError {
			// Go on counting where the process before this one stopped.
			m.failures, m.failure, m.readFailed = min(max(host.Status.ErrorCount, 0), mostFailures), host.Status.ErrorMessage, true
		}
		if r.hosts == nil {
			r.hosts = map[types.NamespacedName]*memory{}
		}
		r.hosts[key] = m
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.hosts, key)
}

// aim notes what the host goes off for. The time of its soft shutdown began when the request was
// recorded, which survives a crash, or, if that lies in the future, when this process first saw it.
// For a host that came on again while it was held, it is when the host was seen on.
func (m *memory) aim(goal, wall, now time.Time) {
	if !m.goal.Equal(goal) {
		m.goal, m.since, m.again = goal, time.Time{}, false
	}
	if !m.since.IsZero() {
		return
	}
	m.since, m.age, m.shutDownSent, m.softRefused = now, 0, false, false
	if !goal.IsZero() && !m.again {
		m.age = max(0, wall.Sub(goal))
	}
}

// sinceBoot returns how long ago a boot was recorded, or, if that lies in the future, first seen.
func (m *memory) sinceBoot(booted, wall, now time.Time) time.Duration {
	if !m.boot.Equal(booted) {
		m.boot, m.bootSeen, m.bootAge = booted, now, max(0, wall.Sub(booted))
	}
	return now.Sub(m.bootSeen) + m.bootAge
}

func (m *memory) fail(err error, reading bool) {
	m.failures++
	m.failure, m.readFailed, m.busy = err.Error(), reading, m.busy && !reading
}

func (m *memory) succeed() { m.failures, m.failure, m.readFailed, m.busy = 0, "", false, false }

// stale reports whether failures are due to be written to the status: when they begin or end, and
// each time that their number has doubled, which bounds the writes that a broken BMC can cause.
func (m *memory) stale(status *api.BareMetalHostStatus) bool {
	if status.ErrorType != api.PowerManagementError {
		return m.failures > 0
	}
	return m.failures == 0 || m.failures >= 2*status.ErrorCount
}

func (m *memory) errorStatus() string {
	if m.failures == 0 {
		return `"errorType":null,"errorMessage":null,"errorCount":null`
	}
	return fmt.Sprintf(`"errorType":%q,"errorMessage":%s,"errorCount":%d`,
		api.PowerManagementError, api.Quote(m.failure), m.failures)
}
