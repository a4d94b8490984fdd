package remediation

import (
	"reflect"
	"testing"
)

// TestFenceIsSafe looks at every State: nothing is released before the fence holds or the host is
// held off, no fence ends while a boot may have what was released, and no host is let go of that
// the storage keeps out.
func TestFenceIsSafe(t *testing.T) {
	taints, ends := 0, 0
	fields := reflect.TypeFor[State]().NumField()
	for bits := range 1 << fields {
		var s State
		v := reflect.ValueOf(&s).Elem()
		for i := range fields {
			v.Field(i).SetBool(bits>>i&1 == 1)
		}
		if s.AnswersRequest && !s.RebootAnnotation || s.FenceHolds && !s.Fenced || s.FenceOver && !s.FenceEnding || s.Fenced && s.FenceEnding || s.OwnTaint && !s.Tainted {
			continue // implied
		}
		off := s.RebootAnnotation && s.AnswersRequest && !s.StatusOn
		switch action := Fence(s); action {
		case TaintNode:
			taints++
			if !s.NeedsRemediation || !s.RebootAnnotation || !(s.FenceHolds || off && !s.Outdated) {
				t.Fatalf("the Node is tainted in %+v", s)
			}
		case UnfenceStorage:
			ends++
			if nothing := !s.NeedsRemediation && !s.RebootAnnotation && !s.Tainted && s.NodeExists; !s.Fenced || !off && !nothing {
				t.Fatalf("the fence ends in %+v", s)
			}
		case RemoveReboot, AddPoweredOffMark:
			if s.FenceEnding || s.Fenced && s.PoweredOffMark && action == AddPoweredOffMark {
				t.Fatalf("%s in %+v", action, s)
			}
			if s.Fenced && action == RemoveReboot {
				t.Fatalf("the host is let go of and kept out in %+v", s)
			}
		case ForgetFence:
			if !s.FenceOver {
				t.Fatalf("the fence is forgotten in %+v", s)
			}
		}
	}
	if taints == 0 || ends == 0 {
		t.Errorf("%d states lead to the taint, %d to the end of a fence", taints, ends)
	}
}
