package scenarios

import "testing"

func TestCrashPlan(t *testing.T) {
	second, each, deed := &CrashOp{Occurrence: 2}, &CrashOp{Each: true}, &CrashOp{Deed: "delete Node/a", Occurrence: 2}
	var p CrashPlan
	due := func(what string, want *CrashOp) {
		t.Helper()
		if got := p.Due("delete Node/a"); got != want {
			t.Errorf("%s: due is %v, want %v", what, got, want)
		}
	}
	due("nothing is planned", nil)
	if p.Arm(&CrashOp{}) || p.Armed() {
		t.Error("a crash at once is planned")
	}
	p.Effect("delete Node/a")
	if !p.Arm(second) {
		t.Error("a crash around an effect is not planned")
	}
	due("one effect before", nil)
	p.Effect("delete Node/a")
	due("at the second effect from then on", second)
	p.Died()
	due("it has crashed", nil)
	p.Arm(each)
	for range 3 {
		due("each effect", each)
		p.Effect("delete Node/a")
		p.Died()
	}
	p.Arm(deed)
	p.Effect("delete Node/a")
	p.Effect("patch Node/a")
	if p.Due("patch Node/a") != nil {
		t.Error("a crash at a deed is due at another one")
	}
	due("at its second deed of that name", deed)
	if p = (CrashPlan{}); p.Armed() {
		t.Error("it is planned still")
	}
}
