package kubetest

import (
	"math/rand/v2"
	"slices"
)

// Generate returns a sequence of n requests on a few objects, the same for the
// same seed. Most requests make sense on their own; a third carry one thing that
// a server has to check.
func Generate(seed uint64, n int) []Op {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 1)), exists: map[string]bool{}}
	// few kinds per sequence, so that requests meet the same objects
	for range 2 {
		g.kinds = append(g.kinds, kinds[g.rnd.IntN(len(kinds))])
	}
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = g.op()
	}
	return ops
}

type generator struct {
	rnd   *rand.Rand
	kinds []kind
	// exists guesses which objects there are, by kind and name, so that most
	// requests meet one.
	exists map[string]bool
}

func pick[T any](g *generator, choices ...T) T { return choices[g.rnd.IntN(len(choices))] }

// chance is true n times in a hundred.
func (g *generator) chance(n int) bool { return g.rnd.IntN(100) < n }

func (g *generator) op() Op {
	k := pick(g, g.kinds...)
	op := Op{Kind: k.name, Name: pick(g, "a", "a", "a", "b")}
	op.Verb = pick(g, "create", "update", "update", "update", "update", "patch", "patch", "patch", "patch", "delete", "delete", "get", "list")
	if !g.exists[op.key()] && g.chance(75) {
		op.Verb = "create"
	}
	switch op.Verb {
	case "create":
		g.exists[op.key()] = true
		if g.chance(10) {
			op.Name = "g*"
		}
		op.Edit = g.edits(k, 3)
		switch {
		case g.chance(5):
			op.Base = "previous"
		case g.chance(5):
			op.Version = "wrong"
		}
	case "update":
		op.Status = k.status && g.chance(40)
		op.Edit = g.edits(k, 2)
		g.conditions(&op)
	case "patch":
		op.Status = k.status && g.chance(40)
		op.Patch = pick(g, "merge", "merge", "lock", "lock", "strategic", "literal", "literal")
		if op.Patch == "literal" {
			op.Patch = g.literal(k)
		} else {
			op.Edit = g.edits(k, 2)
			if op.Patch == "strategic" && k.name == "BareMetalHost" {
				op.Patch = "merge"
			}
			if op.Patch == "strategic" {
				// lists with a merge strategy are not modelled
				op.Edit = slices.DeleteFunc(op.Edit, func(e string) bool {
					return slices.Contains([]string{"finalizer+a", "finalizer+b", "finalizer-a", "finalizer-b", "badfinalizer", "owner", "status=1", "status=2", "address"}, e)
				})
			}
			if g.chance(20) {
				op.Base = pick(g, "previous", "first")
			}
		}
	case "delete":
		g.exists[op.key()] = false
		if g.chance(50) {
			op.If = append(op.If, pick(g, "uid", "wrong-uid", "rv", "old-rv"))
		}
		if g.chance(20) {
			op.If = append(op.If, "background")
		}
		if g.chance(40) {
			op.Grace = pick(g, "0", "1", "7", "1000")
		}
	case "list":
		op.Name = ""
		switch g.rnd.IntN(4) {
		case 0:
			op.Edit = []string{"label=1"}
		case 1:
			op.Edit = []string{"name=a"}
		case 2:
			if k.name == "Pod" {
				op.Edit = []string{"node=n"}
			}
		}
	}
	return op
}

func (g *generator) edits(k kind, most int) []string {
	var edits []string
	for range g.rnd.IntN(most + 1) {
		if g.chance(55) {
			edits = append(edits, pick(g, k.edits...))
		} else {
			edits = append(edits, pick(g, metadataEdits...))
		}
	}
	return edits
}

func (g *generator) conditions(op *Op) {
	if g.chance(25) {
		op.Base = pick(g, "previous", "first")
	}
	if g.chance(25) {
		op.Version = pick(g, "none", "none", "wrong")
	}
	if g.chance(25) {
		op.UID = pick(g, "none", "none", "wrong")
	}
}

// literal returns a patch as somebody would write it by hand.
func (g *generator) literal(k kind) string {
	general := []string{
		`{}`,
		`{"metadata":{"annotations":{"a":"1"}}}`,
		`{"metadata":{"annotations":{"a":null}}}`,
		`{"metadata":{"annotations":null,"labels":{"l":"2"}}}`,
		`{"metadata":{"annotations":{}}}`,
		`{"metadata":{"finalizers":["fencelab.dev/b"]}}`,
		`{"metadata":{"finalizers":null}}`,
		`{"metadata":{"resourceVersion":RV,"labels":{"l":"1"}}}`,
		`{"metadata":{"resourceVersion":OLDRV,"labels":{"l":"1"}}}`,
		`{"metadata":{"resourceVersion":null,"labels":{"l":"2"}}}`,
		`{"metadata":{"uid":UID,"labels":{"l":"1"}}}`,
		`{"metadata":{"uid":"00000000-0000-0000-0000-0000000000ff"}}`,
		`{"metadata":{"generation":5}}`,
		`{"metadata":{"name":"other"}}`,
		`{"metadata":{"deletionTimestamp":"2024-05-06T07:08:09Z"}}`,
		`{"unknown":{"field":1}}`,
		`[]`,
		`{"metadata":{"labels":{"l":"not a label!"}}}`,
	}
	of := map[string][]string{
		"Node": {
			`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`, `{"spec":null}`, `{"spec":{"taints":null}}`,
			`{"spec":{"unschedulable":"yes"}}`, `{"status":{"nodeInfo":{"bootID":"b"}}}`, `{"status":null}`,
			`strategic:{"metadata":{"annotations":{"a":"2"}}}`, `strategic:{"spec":{"unschedulable":true}}`,
		},
		"Pod":    {`{"spec":{"nodeName":"m"}}`, `{"status":{"phase":"Failed"}}`, `{"status":{"phase":"Running"}}`, `strategic:{"metadata":{"labels":{"l":null}}}`},
		"Lease":  {`{"spec":{"holderIdentity":"me"}}`, `{"spec":{"holderIdentity":null}}`, `{"spec":{"renewTime":"2024-05-06T07:08:09.123456Z"}}`, `{"spec":null}`},
		"Secret": {`{"data":{"k":"djE="}}`, `{"data":{"k":null}}`, `{"stringData":{"s":"x"}}`, `{"data":null}`, `{"data":{"k":5}}`},
		"Event":  {`{"count":3}`, `{"message":null}`},
		"BareMetalHost": {
			`{"spec":{"online":true}}`, `{"spec":{"online":null}}`, `{"spec":{"bmc":{"address":"redfish://1"}}}`, `{"spec":{"bmc":{}}}`, `{"spec":{"bmc":null}}`,
			`{"spec":{"unknown":1}}`, `{"spec":{"online":"yes"}}`, `{"spec":{"consumerRef":{"name":"m"}}}`, `{"spec":{"consumerRef":null}}`,
			`{"status":{"poweredOn":true}}`, `{"status":{"errorMessage":"x"}}`, `{"status":{"errorMessage":""}}`, `{"status":null}`, `{"status":{}}`,
			`{"status":{"poweredOn":false,"provisioning":{"pendingRebootSince":"2024-05-06T07:08:09.123456Z"}}}`,
			`{"status":{"provisioning":null}}`, `{"status":{"poweredOn":true,"provisioning":{"state":"provisioned"}}}`,
		},
	}
	if g.chance(50) {
		return pick(g, of[k.name]...)
	}
	return pick(g, general...)
}
