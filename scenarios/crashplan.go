package scenarios

// CrashPlan says around which of its effects a process is to crash, in every world. The zero value
// plans none.
type CrashPlan struct {
	op *CrashOp
	// deeds counts those that it could mean since it was planned.
	deeds int
}

// Arm plans a crash, in the place of any other. It reports false for one that is to come at once.
func (p *CrashPlan) Arm(op *CrashOp) bool {
	if op.AtOnce() {
		return false
	}
	*p = CrashPlan{op: op}
	return true
}

// Armed reports whether a crash is still to come.
func (p *CrashPlan) Armed() bool { return p.op != nil }

// Due is the crash around an effect that comes next, nil if that is none.
func (p *CrashPlan) Due(effect string) *CrashOp {
	if p.means(effect) && (p.op.Each || p.deeds+1 == max(p.op.Occurrence, 1)) {
		return p.op
	}
	return nil
}

func (p *CrashPlan) means(effect string) bool { return p.op != nil && matches(p.op.Deed, effect) }

// Effect notes that there was one.
func (p *CrashPlan) Effect(effect string) {
	if p.means(effect) {
		p.deeds++
	}
}

// Died notes that the process has, for whatever reason: only a crash at each effect comes again.
func (p *CrashPlan) Died() {
	if p.op != nil && !p.op.Each {
		p.op = nil
	}
}
