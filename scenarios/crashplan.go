package scenarios

// CrashPlan says around which of its effects a process is to crash, in every world. The zero value
// plans none.
type CrashPlan struct {
	op *CrashOp
	// effects counts those since the crash was planned.
	effects int
}

// Arm plans a crash, in the place of any other. It reports false for one that is to come at once.
func (p *CrashPlan) Arm(op *CrashOp) bool {
	if op.Effect == 0 && !op.Each {
		return false
	}
	*p = CrashPlan{op: op}
	return true
}

// Armed reports whether a crash is still to come.
func (p *CrashPlan) Armed() bool { return p.op != nil }

// Due is the crash around the next effect, nil if that is none.
func (p *CrashPlan) Due() *CrashOp {
	if p.op != nil && (p.op.Each || p.effects+1 == p.op.Effect) {
		return p.op
	}
	return nil
}

// Effect notes that there was one.
func (p *CrashPlan) Effect() { p.effects++ }

// Died notes that the process has, for whatever reason: only a crash at each effect comes again.
func (p *CrashPlan) Died() {
	if p.op != nil && !p.op.Each {
		p.op = nil
	}
}
