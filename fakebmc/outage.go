package fakebmc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RestorePolicy is a Redfish ComputerSystem.PowerRestorePolicyTypes: what the BMC
// does to its host when the AC power is back.
type RestorePolicy string

// The restore policies.
const (
	AlwaysOn  RestorePolicy = "AlwaysOn"
	AlwaysOff RestorePolicy = "AlwaysOff"
	LastState RestorePolicy = "LastState"
)

var restorePolicies = []RestorePolicy{AlwaysOn, AlwaysOff, LastState}

// RestorePolicies returns every policy.
func RestorePolicies() []RestorePolicy { return slices.Clone(restorePolicies) }

// RestorePolicy returns the policy that is set; it outlives every restart.
func (b *BMC) RestorePolicy() RestorePolicy {
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	return cmp.Or(b.mem.policy, LastState)
}

// SetRestorePolicy sets what happens after a loss of AC power.
func (b *BMC) SetRestorePolicy(p RestorePolicy) error {
	if !slices.Contains(restorePolicies, p) {
		return fmt.Errorf("setting the power restore policy of %s: %q is none of %v", b.host, p, restorePolicies)
	}
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	b.mem.policy = p
	return nil
}

// outage is a time in which the BMC is down.
type outage struct {
	forget  bool
	restore RestorePolicy // applied when it is up again; empty applies none
	last    PowerState    // of the host, before
	report  string        // reported so long after it is up again
	insist  time.Duration
	mains   *rule // the loss of AC power that holds it down
	cut     bool  // it has lost the AC power for a while
	// by is the name of the rule that has taken it down; empty if a client has. Requests that find
	// it down name it.
	by string
}

// downBy names the rule that has taken the BMC down, if one has.
func (b *BMC) downBy() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outage == nil || b.outage.by == "" {
		return nil
	}
	return []string{b.outage.by}
}

// chore is something that the BMC will do by itself.
type chore struct {
	// misdeed says that nobody has asked for it: a rule has.
	misdeed bool
	stop    func() bool // of the Clock
}

// later lets the BMC do f after d, or when it is up again.
func (b *BMC) later(d time.Duration, f func()) *chore { return b.will(new(chore), d, f) }

func (b *BMC) will(c *chore, d time.Duration, f func()) *chore {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Load() == closed {
		return c
	}
	c.stop = b.clk.AfterFunc(d, func() {
		b.mu.Lock()
		mine := b.dropChore(c)
		if mine && b.life.Load() == down {
			b.late = append(b.late, f)
			mine = false
		}
		b.mu.Unlock()
		if mine {
			f()
		}
	})
	b.chores = append(b.chores, c)
	return c
}

func (b *BMC) cancel(c *chore) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropChore(c) {
		c.stop()
	}
}

// dropChore takes a chore out of those that are planned, if it is one of them. It is
// called with mu held.
func (b *BMC) dropChore(c *chore) bool {
	i := slices.Index(b.chores, c)
	if i >= 0 {
		b.chores = slices.Delete(b.chores, i, i+1)
	}
	return i >= 0
}

// dropChores calls everything off that is planned or overdue. It is called with mu held.
func (b *BMC) dropChores() {
	for _, c := range b.chores {
		c.stop()
	}
	b.chores, b.late = nil, nil
}

// OnReset lets f know of each reset that the BMC receives, before it does anything
// about it; also of those that it makes by itself, as ClientBMC, ClientWatchdog or
// ClientRestore. A request that finds no connection is not received.
func OnReset(f func(client string, t ResetType)) Option {
	return func(b *BMC) { b.onReset = f }
}

// Hooks are what an interface with a memory of its own wants to know of its BMC; nil is nothing.
type Hooks struct {
	// Reset is called before the host is reset, for whatever reason that the BMC has.
	Reset func(r Request, t ResetType)
	// Forget is called when the BMC has lost its memory, and says whether it was with the AC power.
	Forget func(mains bool)
}

// Hook has the BMC call some hooks until it is stopped.
func (b *BMC) Hook(h Hooks) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks = append(b.hooks, &h)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hooks = slices.DeleteFunc(slices.Clone(b.hooks), func(g *Hooks) bool { return g == &h })
	}
}

func (b *BMC) tell(call func(*Hooks)) {
	b.mu.Lock()
	hooks := slices.Clip(b.hooks)
	b.mu.Unlock()
	for _, h := range hooks {
		call(h)
	}
}

// act is a reset by the BMC itself. It is recorded like any other one.
func (b *BMC) act(client string, t ResetType) {
	req := b.ResetRequest(client, t)
	req.own = true
	b.Do(req, func(Answer) {})
}

// restart takes the BMC down for a while, by a rule.
func (b *BMC) restart(r *Restart, by string) {
	b.goDown(&outage{forget: r.Forget, restore: r.Restore, last: b.actual(), report: r.Report, insist: time.Duration(r.For), by: by}, time.Duration(r.Downtime))
}

// Lost returns a channel that is closed when the BMC goes down the next time.
// Whoever has a connection or a session with it must drop them then.
func (b *BMC) Lost() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// goDown begins an outage, which takes the place of one that is under way. It
// ends after d, or with the loss of AC power if d is Never.
func (b *BMC) goDown(o *outage, d time.Duration) {
	b.mu.Lock()
	if b.life.Load() == closed || b.outage != nil && b.outage.mains != nil && o.mains == nil {
		b.mu.Unlock() // without power nothing restarts
		return
	}
	b.life.Store(down)
	b.outage = o
	cut := b.waiting()
	for _, c := range cut {
		c.stop()
	}
	clear(b.pending)
	if o.forget {
		b.dropChores()
	}
	close(b.lost)
	b.lost = make(chan struct{})
	b.mu.Unlock()

	if o.forget {
		b.mem.forget()
		b.tell(func(h *Hooks) {
			if h.Forget != nil {
				h.Forget(o.mains != nil || o.cut)
			}
		})
	}
	for _, c := range cut {
		c.lose()
	}
	if d != Never {
		b.bootLater(o, d)
	}
}

// bootLater ends the outage after d. Being down can't put it off.
func (b *BMC) bootLater(o *outage, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Load() == closed {
		return
	}
	c := new(chore)
	c.stop = b.clk.AfterFunc(d, func() {
		b.mu.Lock()
		mine := b.dropChore(c)
		b.mu.Unlock()
		if mine {
			b.boot(o)
		}
	})
	b.chores = append(b.chores, c)
}

// boot ends an outage unless another one has taken its place.
func (b *BMC) boot(o *outage) {
	b.mu.Lock()
	if b.outage != o || b.life.Load() != down {
		b.mu.Unlock()
		return
	}
	b.outage = nil
	b.mem.upAgain(b.clk.Now())
	b.life.Store(up)
	late := b.late
	b.late = nil
	b.mu.Unlock()
	for _, r := range b.Rules() {
		if r.ends(EndsRestart) {
			b.RemoveRule(r.Name)
		}
	}
	if o.report != "" {
		b.mem.insist(o.report, end(b.clk.Now(), Duration(o.insist)))
	}
	for _, f := range late {
		f()
	}
	switch {
	case o.restore == AlwaysOn, o.restore == LastState && o.last != Off:
		b.act(ClientRestore, ResetOn)
	case o.restore == AlwaysOff && o.mains == nil:
		b.act(ClientRestore, ResetForceOff)
	}
}

// end is the end of a time that begins now; 0 is for ever.
func end(now time.Duration, d Duration) time.Duration {
	if d == 0 {
		return Never
	}
	return now + time.Duration(d)
}

// performable returns the reasons why the parts of a rule that are for this BMC would
// come to nothing here.
func (b *BMC) performable(whole Rule, rules []*rule) error {
	var errs []error
	if key := whole.Needs()[NeedsIPMI]; key != "" && b.noIPMI && len(rules) > 0 {
		errs = append(errs, fmt.Errorf("adding rule %q to the bmc of %s: its %s is for clients that come by IPMI, which is not served: %w", whole.Name, b.host, key, ErrUnsupported))
	}
	for _, r := range rules {
		if err := b.neverFires(r); err != nil && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("adding rule %q to the bmc of %s: it would never fire: %w", r.Name, b.host, err))
		}
		if _, ok := b.sys.(GuestSystem); r.Effect.Guest != nil && !ok {
			errs = append(errs, fmt.Errorf("adding rule %q to the bmc of %s: this system can't be told how its guest behaves: %w", r.Name, b.host, ErrUnsupported))
		}
		if (r.Effect.Swap != "" || r.Effect.Also != "") && len(b.peers) < 2 {
			errs = append(errs, fmt.Errorf("adding rule %q to the bmc of %s: it knows no other host to act upon: %w", r.Name, b.host, ErrUnsupported))
		}
	}
	return errors.Join(errs...)
}

// schedule lets a rule that takes place by itself begin, at once or at from.
func (b *BMC) schedule(r *rule) {
	if !r.spontaneous() {
		return
	}
	now := b.clk.Now()
	if r.When.Until != 0 {
		b.onClock(r, time.Duration(r.When.Until)-now, func() { b.finish(r) })
	}
	if wait := time.Duration(r.When.From) - now; wait > 0 {
		b.onClock(r, wait, func() { b.begin(r) })
		return
	}
	b.begin(r)
}

func (b *BMC) onClock(r *rule, d time.Duration, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(*b.rules.Load(), r) {
		return
	}
	if r.stop == nil {
		r.stop = map[uint64]func() bool{}
	}
	r.timers++
	n := r.timers
	r.stop[n] = b.clk.AfterFunc(max(d, 0), func() {
		b.mu.Lock()
		delete(r.stop, n)
		b.mu.Unlock()
		f()
	})
}

// begin lets a rule take place by itself, and records it: there is no request
// that would tell of it.
func (b *BMC) begin(r *rule) {
	now := b.clk.Now()
	if r.When.Until != 0 && now >= time.Duration(r.When.Until) {
		return
	}
	b.mu.Lock()
	if !slices.Contains(*b.rules.Load(), r) {
		b.mu.Unlock()
		return
	}
	r.begun = true
	b.mu.Unlock()
	var err error
	switch {
	case r.Effect.Restart != nil:
		b.restart(r.Effect.Restart, r.Name)
	case r.Effect.Guest != nil:
		err = b.setGuest()
	case r.Effect.Loss != nil:
		err = b.loseAC(r)
	case r.Effect.Unasked != nil:
		b.onClock(r, time.Duration(r.Effect.Unasked.After), func() { b.resetUnasked(r) })
	}
	b.log(&Record{
		Seq: b.seq.Add(1), Host: b.host, Request: Request{Client: ClientBMC}, Received: now, Executed: now, Answered: Never,
		Answer: Answer{Cause: err}, Rules: []string{r.Name},
	})
}

func (b *BMC) loseAC(r *rule) error {
	o := &outage{forget: true, restore: cmp.Or(r.Effect.Loss.Restore, b.RestorePolicy()), last: b.actual(), mains: r, by: r.Name}
	b.goDown(o, Never)
	if d := r.Effect.Loss.For; d != 0 {
		b.onClock(r, time.Duration(d), func() { b.powerBack(r) })
	}
	return b.cut()
}

// mainsOff is for how long a full power cycle takes the power away.
const mainsOff = 10 * time.Second

// cycleMains takes the power away from the host and from the BMC, and gives it back. What the host
// does then is for its restore policy to say.
func (b *BMC) cycleMains() {
	b.goDown(&outage{forget: true, cut: true, restore: b.RestorePolicy(), last: b.actual()}, mainsOff+b.restartTime)
	_ = b.cut() // a host that is gone has no power either
}

// cut takes the power away from the host.
func (b *BMC) cut() error {
	if m, ok := b.sys.(Mains); ok {
		return m.LoseAC()
	}
	return resetFor(b.sys, ClientBMC, ResetForceOff)
}

// resetUnasked resets the host, and will again. A BMC that is down does nothing meanwhile.
func (b *BMC) resetUnasked(r *rule) {
	if b.life.Load() == up {
		b.act(ClientBMC, r.Effect.Unasked.Reset)
	}
	if every := time.Duration(r.Effect.Unasked.Every); every > 0 {
		b.onClock(r, every, func() { b.resetUnasked(r) })
	}
}

// powerBack lets the BMC boot when the loss of AC power is over.
func (b *BMC) powerBack(r *rule) {
	b.mu.Lock()
	o := b.outage
	b.mu.Unlock()
	if o != nil && o.mains == r {
		b.bootLater(o, time.Duration(r.Effect.Loss.Downtime))
	}
}

// finish ends what a rule began by itself, and its timers.
func (b *BMC) finish(r *rule) {
	b.mu.Lock()
	for _, stop := range r.stop { // order does not matter: none comes any more
		stop()
	}
	r.stop = nil
	begun := r.begun
	r.begun = false
	b.mu.Unlock()
	switch {
	case !begun:
	case r.Effect.Guest != nil:
		_ = b.setGuest() // a guest that is gone needs none
	case r.Effect.Loss != nil:
		b.powerBack(r)
	}
}

// setGuest makes the guest what all rules that have begun say of it. What they say of
// different things adds up; of two speeds the first one counts.
func (b *BMC) setGuest() error {
	b.telling.Lock() // or what is told last is not what is the case last
	defer b.telling.Unlock()
	var all Guest
	b.mu.Lock()
	for _, r := range *b.rules.Load() {
		if g := r.Effect.Guest; g != nil && r.begun {
			all.Ignore = all.Ignore || g.Ignore
			all.Slow = cmp.Or(all.Slow, g.Slow)
			all.Paused = all.Paused || g.Paused
		}
	}
	b.mu.Unlock()
	return b.sys.(GuestSystem).SetGuest(all)
}
