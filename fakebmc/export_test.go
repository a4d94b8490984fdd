package fakebmc

// Fires reports whether a rule fires on a request, whether or not AddRule would take it.
func (b *BMC) Fires(r Rule, req Request, t Traits) bool {
	var rules []*rule
	for _, x := range r.expand() {
		rules = append(rules, newRule(x, &r))
	}
	return len(judge(rules, &arrival{Request: req, traits: t, bmc: b, kind: b.kind(&req, t), now: b.clk.Now()}, false).fired) > 0
}
