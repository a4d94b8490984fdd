package kubetest

import "slices"

// Shrink returns a shorter, simpler sequence that still fails, given one that
// does. fails must not depend on anything but the sequence.
func Shrink(sequence []Op, fails func([]Op) bool) []Op {
	for chunk := len(sequence) / 2; chunk > 0; {
		removed := false
		for i := 0; i+chunk <= len(sequence); {
			if shorter := slices.Delete(slices.Clone(sequence), i, i+chunk); fails(shorter) {
				sequence, removed = shorter, true
			} else {
				i += chunk
			}
		}
		if !removed {
			chunk /= 2
		}
	}
	for i := range sequence {
		for _, simpler := range simplify(sequence[i]) {
			candidate := slices.Clone(sequence)
			candidate[i] = simpler(sequence[i])
			if fails(candidate) {
				sequence = candidate
			}
		}
	}
	return sequence
}

// simplify returns ways to take one detail out of a request.
func simplify(op Op) []func(Op) Op {
	ways := []func(Op) Op{
		func(o Op) Op { o.Base = ""; return o },
		func(o Op) Op { o.Version = ""; return o },
		func(o Op) Op { o.UID = ""; return o },
		func(o Op) Op { o.Status = false; return o },
		func(o Op) Op { o.Grace = ""; return o },
		func(o Op) Op { o.If = nil; return o },
	}
	for _, e := range op.Edit {
		ways = append(ways, func(o Op) Op { o.Edit = without(o.Edit, e); return o })
	}
	return ways
}
