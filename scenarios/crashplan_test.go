package scenarios

import "testing"

func TestCrashPlan(t *testing.T) {
	second, each := &CrashOp{Effect: 2}, &CrashOp{Each: true}
	var p CrashPlan
	due := func(what string, want *CrashOp) {
		t.Helper()
		if got := p.Due(); got != want {
			t.Errorf("%s: due is %v, want %v", what, got, want)
		}
	}
	due("nothing is planned", nil)
	if p.Arm(&CrashOp{}) || p.Armed() {
		t.Error("a crash at once is planned")
	}
	p.Effect()
	if !p.Arm(second) {
		t.Error("a crash around an effect is not planned")
	}
	due("one effect before", nil)
	p.Effect()
	due("at the second effect from then on", second)
	p.Died()
	due("it has crashed", nil)
	p.Arm(each)
	for range 3 {
		due("each effect", each)
		p.Effect()
		p.Died()
	}
	if p = (CrashPlan{}); p.Armed() {
		t.Error("it is planned still")
	}
}
