package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var claimIsTrue = Invariant{
	ID:    "claim-is-true",
	Claim: "While a field that the scenario names says that a host is off, the host is off, apart from the time for which the two may differ.",
	Seed:  "000, 002",
	New: func(p Params) Checker {
		c := &claims{ruling: ruling{id: "claim-is-true"}, hosts: newRoster[body](p.Hosts)}
		for _, claim := range p.Claims {
			claim.Within = max(claim.Within, p.Timings.Skew) // what is closer has no known order
			c.all = append(c.all, claimed{Claim: claim})
		}
		return c
	},
}

// Claim is a field that says of a host that it is off as long as it has a value.
type Claim struct {
	Host, Object string
	// Key is the JSONPath of the field. Without one it is status.poweredOn, of which PowerReported tells.
	Key, Value string
	// Within is how long the host and the field may differ.
	Within time.Duration
}

// claims holds fields against what hosts do. Whoever acts on such a field knows nothing of BMCs that lie or controllers that
// crash: so those excuse nothing, in contrast to status-truthful, which judges the power controller. Only a schedule that
// holds up who would correct the field does, and for no longer than it does so.
type claims struct {
	ruling
	hosts roster[body]
	all   []claimed
	// deviations is how often the schedule has left its default, and held for how long that can hold somebody up.
	deviations int
	held       time.Duration
}

// limit is how long a claim may be wrong: each deviation can hold up who would correct it for as long as it lasts, and he
// then has the time that he always has.
func (c *claims) limit(claim *claimed) time.Duration {
	return time.Duration(1+c.deviations)*claim.Within + c.held
}

type claimed struct {
	Claim
	says bool
	lapse
}

// lapse is a stretch in which something is said that isn't so.
type lapse struct {
	// wrong is the event that began it, zero if there is none, and from when it counts.
	wrong history.Event
	from  time.Duration
}

// differ notes that what is said is not so.
func (l *lapse) differ(e *history.Event) {
	if l.wrong.Kind == "" {
		l.wrong, l.from = *e, e.At
	}
}

// outlasts reports whether the stretch is longer than a limit when e comes.
func (l *lapse) outlasts(limit time.Duration, e *history.Event) bool {
	return l.wrong.Kind != "" && e.At-l.from > limit
}

func (c *claims) Observe(e *history.Event) *Violation {
	// What has lasted for too long has done so before anything else happens.
	for i := range c.all {
		c.expire(&c.all[i], e)
	}
	switch e.Kind {
	case history.Deviated:
		c.deviations++
		c.held += e.Lasts()
	case history.Healed:
		for i := range c.all {
			if c.deviations > 0 {
				c.all[i].from = e.At // only now is anybody free to correct it
			}
		}
		c.deviations, c.held = 0, 0
	}
	if e.Host != "" && e.Kind.Layer() == history.World {
		c.hosts.of(e.Host).observe(e)
	}
	for i := range c.all {
		c.judge(&c.all[i], e)
	}
	return c.tell()
}

func (c *claims) judge(claim *claimed, e *history.Event) {
	said := claim.says
	switch {
	case e.Object != claim.Object:
	case e.Kind == history.FieldIs && e.Key == claim.Key, e.Kind == history.PowerReported && claim.Key == "":
		claim.says = e.Value == claim.Value
	case e.Kind == history.BareMetalHostDeleted:
		claim.says = false
	}
	h := c.hosts.of(claim.Host)
	if e.Kind == history.EvidenceLost && e.Host == claim.Host && claim.says {
		c.suspend(e, ", while a field said that it was off")
	}
	switch {
	case !claim.says || !h.known() || !h.on:
		if claim.says && !said && h.known() || claim.wrong.Kind != "" {
			c.judged++
		}
		if claim.wrong.Kind != "" && claim.wrong.At == claim.from && c.deviations == 0 {
			c.within(claim.Within, &claim.wrong, e)
		}
		claim.wrong = history.Event{}
	default:
		claim.differ(e)
	}
}

// expire judges a claim that has been wrong for too long when e comes.
func (c *claims) expire(claim *claimed, e *history.Event) {
	if !claim.outlasts(c.limit(claim), e) {
		return
	}
	c.judged++
	first := claim.wrong
	what := claim.Key
	if what == "" {
		what = "status.poweredOn"
	}
	c.breach(&first, e, claim.Host+" was on, and "+claim.Object+" said by "+what+"="+claim.Value+" that it was off, from "+seconds(claim.from)+" on and at "+seconds(e.At)+" still")
}

func (c *claims) Finish(complete bool) Result {
	return c.verdict(complete, "no field that the scenario names said that a host was off")
}
