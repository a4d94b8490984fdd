package fakebmc

import "time"

// call is a request on which rules have fired, on its way to its answer.
type call struct {
	b       *BMC
	rec     Record
	verdict verdict
	caller  caller
	stop    func() bool // of the Clock, while pending
}

// wait goes on with next after d. The call is pending meanwhile; whoever takes it
// out of the pending ones, the clock, an outage or Close, is the only one to touch it.
func (c *call) wait(d time.Duration, next func()) {
	if d == 0 {
		next()
		return
	}
	b := c.b
	b.mu.Lock()
	switch b.life.Load() {
	case closed:
		b.mu.Unlock()
		return
	case down:
		b.mu.Unlock()
		c.lose()
		return
	}
	defer b.mu.Unlock()
	b.pending[c.rec.Seq] = c
	c.stop = b.clk.AfterFunc(d, func() {
		b.mu.Lock()
		_, mine := b.pending[c.rec.Seq]
		delete(b.pending, c.rec.Seq)
		b.mu.Unlock()
		if mine {
			next()
		}
	})
}

// lose ends the call with its connection.
func (c *call) lose() {
	c.rec.Answer = Answer{Cause: ErrUnreachable}
	c.b.answer(&c.rec, c.caller, c.verdict.effects)
}

func (c *call) execute() {
	if c.endedAt(Received) {
		return
	}
	c.b.execute(&c.rec, c.caller, c.verdict.effects)
	c.wait(c.verdict.effects.delay(Executed), c.answer)
}

func (c *call) answer() {
	if !c.endedAt(Executed) {
		c.b.answer(&c.rec, c.caller, c.verdict.effects)
	}
	c.b.afterwards(&c.rec)
	if e := c.verdict.effects.First(func(e *Effect) bool { return e.Restart != nil && e.at(Executed) }); e != nil {
		c.b.restart(e.Restart, c.verdict.by(e))
	}
}

// endedAt ends the call if a rule does so at this stage.
func (c *call) endedAt(s Stage) bool {
	e := c.verdict.effects.end(s)
	switch {
	case e == nil:
		return false
	case e.Hang:
		c.rec.Answer = Answer{}
		c.b.log(&c.rec)
		return true
	case e.Unreachable:
		c.lose()
		return true
	case e.Restart != nil:
		c.lose()
		c.b.restart(e.Restart, c.verdict.by(e))
		return true
	}
	c.rec.Answer = e.Refuse.answer()
	c.b.answer(&c.rec, c.caller, c.verdict.effects)
	return true
}

func (r *Refusal) answer() Answer {
	id := r.ID
	if id == "" && r.Body == "" {
		id = MsgGeneralError
	}
	return Answer{
		Status: r.Status, MessageID: id, Args: r.Args, Message: r.Text, RetryAfter: time.Duration(r.Retry),
		Code: r.Code, Refusal: r,
	}
}
