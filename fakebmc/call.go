package fakebmc

import "time"

// call is a request on which rules may have fired, on its way to its answer.
type call struct {
	b       *BMC
	rec     Record
	verdict verdict
	reply   func(Answer)
	stop    func() bool // of the Clock, while pending
}

// wait goes on with next after d. The call is pending meanwhile; whoever takes it
// out of the pending ones, the clock or Close, is the only one to touch it.
func (c *call) wait(d time.Duration, next func()) {
	if d == 0 {
		next()
		return
	}
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return
	}
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

func (c *call) execute() {
	if c.endedAt(before) {
		return
	}
	c.b.execute(&c.rec, &c.verdict)
	c.wait(c.verdict.delay[after], c.answer)
}

func (c *call) answer() {
	if !c.endedAt(after) {
		c.b.answer(&c.rec, c.reply)
	}
}

// endedAt ends the call if a rule does so at this stage.
func (c *call) endedAt(stage int) bool {
	e := c.verdict.end[stage]
	switch {
	case e == nil:
		return false
	case e.Hang:
		c.rec.Answer = Answer{}
		c.b.log(&c.rec)
		return true
	case e.Unreachable:
		c.rec.Answer = Answer{Cause: ErrUnreachable}
	default:
		c.rec.Answer = e.Refuse.answer()
	}
	c.b.answer(&c.rec, c.reply)
	return true
}

func (r *Refusal) answer() Answer {
	id := r.ID
	if id == "" {
		id = msgGeneralError
	}
	return Answer{Status: r.Status, MessageID: id, Args: r.Args, Message: r.Text, RetryAfter: time.Duration(r.Retry)}
}
