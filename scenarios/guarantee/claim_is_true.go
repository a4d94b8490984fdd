package guarantee

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var claimIsTrue = invariant.Invariant{
	ID:    "claim-is-true",
	Claim: "While a field that the scenario names says that a host is off, the host is off, apart from the time for which the two may differ.",
	Seed:  "000, 002",
	New: func(p invariant.Params) invariant.Checker {
		c := &claims{Ruling: invariant.Ruling{ID: "claim-is-true"}, hosts: invariant.NewRoster[invariant.Body](p.Hosts)}
		for _, claim := range p.Claims {
			claim.Within = max(claim.Within, p.Timings.Skew) // what is closer has no known order
			c.all = append(c.all, claimed{Claim: claim})
		}
		return c
	},
}

// claims holds fields against what hosts do. Whoever acts on such a field knows nothing of BMCs
// that lie or controllers that crash: so those excuse nothing, in contrast to status-truthful,
// which judges the power controller. Only a schedule that holds up who would correct the field
// does, and for no longer than it does so.
type claims struct {
	invariant.Ruling
	hosts invariant.Roster[invariant.Body]
	all   []claimed
	// deviations is how often the schedule has left its default, and held for how long that can
	// hold somebody up.
	deviations int
	held       time.Duration
}

// limit is how long a claim may be wrong: each deviation can hold up who would correct it for as
// long as it lasts, and he then has the time that he always has.
func (c *claims) limit(claim *claimed) time.Duration {
	return time.Duration(1+c.deviations)*claim.Within + c.held
}

type claimed struct {
	invariant.Claim
	says bool
	invariant.Lapse
}

func (c *claims) Observe(e *history.Event) *invariant.Violation {
	if len(c.all) == 0 {
		return nil
	}
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
				c.all[i].From = e.At // only now is anybody free to correct it
			}
		}
		c.deviations, c.held = 0, 0
	}
	if e.Host != "" && e.Kind.Layer() == history.World {
		c.hosts.Of(e.Host).Observe(e)
	}
	for i := range c.all {
		c.judge(&c.all[i], e)
	}
	return c.Tell()
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
	h := c.hosts.Of(claim.Host)
	if e.Kind == history.EvidenceLost && e.Host == claim.Host && claim.says {
		c.Suspend(e, ", while a field said that it was off")
	}
	switch {
	case !claim.says || !h.Known() || !h.On:
		if claim.says && !said && h.Known() || claim.Wrong.Kind != "" {
			c.Judged++
		}
		if claim.Wrong.Kind != "" && claim.Wrong.At == claim.From && c.deviations == 0 {
			c.Within(claim.Within, &claim.Wrong, e)
		}
		claim.Wrong = history.Event{}
	default:
		claim.Differ(e)
	}
}

// expire judges a claim that has been wrong for too long when e comes.
func (c *claims) expire(claim *claimed, e *history.Event) {
	if !claim.Outlasts(c.limit(claim), e) {
		return
	}
	c.Judged++
	first := claim.Wrong
	what := claim.Key
	if what == "" {
		what = "status.poweredOn"
	}
	c.Breach(&first, e, claim.Host+" was on, and "+claim.Object+" said by "+what+"="+claim.Value+" that it was off, from "+invariant.Seconds(claim.From)+" on and at "+invariant.Seconds(e.At)+" still")
}

func (c *claims) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no field that the scenario names said that a host was off")
}
