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
	drawn := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.scripted })
	for range 2 {
		g.kinds = append(g.kinds, drawn[g.rnd.IntN(len(drawn))])
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

// op draws a request.
//
// It is long because it has a case for each kind of request.
func (g *generator) op() Op {
	k := pick(g, g.kinds...)
	op := Op{Kind: k.name, Name: pick(g, "a", "a", "a", "b")}
	op.Verb = pick(g, "create", "update", "update", "update", "update", "patch", "patch", "patch", "patch", "delete", "delete", "get", "list",
		"apply", "apply", "apply", "managers", "deleteall")
	if !g.exists[op.key()] && g.chance(75) {
		op.Verb = "create"
	}
	if g.chance(15) {
		op.As = "unstructured"
	}
	if g.chance(15) {
		op.Manager = pick(g, "m", "n")
	}
	switch op.Verb {
	case "apply", "create", "update", "patch", "delete":
		op.DryRun = g.chance(4)
	}
	switch op.Verb {
	case "apply":
		g.exists[op.key()] = true
		op.As, op.Manager, op.Force = "", pick(g, "m", "n", "conformance"), g.chance(30)
		op.Status = k.status && g.chance(20)
		op.Patch = g.configuration(k)
		if g.chance(3) {
			op.Manager = ""
		}
	case "deleteall":
		op.Name, op.Manager = "", ""
		if !g.chance(30) {
			op.Verb = "list"
			op.Edit = []string{"limit=" + pick(g, "1", "2")}
		} else {
			op.Edit = []string{"mine"}
		}
	case "managers":
		op.As, op.Manager = "", ""
	case "create":
		g.exists[op.key()] = true
		if g.chance(10) {
			op.Name = "g*"
		}
		op.Edit = g.edits(k, 3)
		g.rough(k, &op)
		switch {
		case g.chance(5):
			op.Base = "previous"
		case g.chance(5):
			op.Version = "wrong"
		}
	case "update":
		op.Status = k.status && g.chance(40)
		op.Edit = g.edits(k, 2)
		g.rough(k, &op)
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
	case "get":
		if g.chance(10) {
			op.As = "metadata"
		}
	case "list":
		op.Name = ""
		if g.chance(10) {
			op.As = "metadata"
		}
		switch g.rnd.IntN(5) {
		case 0:
			op.Edit = []string{"label=1"}
		case 1:
			op.Edit = []string{"name=a"}
		case 2:
			if k.name == "Pod" {
				op.Edit = []string{"node=n"}
			}
		case 3:
			op.Edit = []string{"field=" + pick(g, "metadata.name:!x", "spec.unschedulable:true", "spec.unschedulable:!true", "status.phase:Pending", "type:Opaque", "spec.online:true", "metadata.namespace:default")}
		}
	}
	return op
}

// rough gives an unstructured object content that no typed one could have.
func (g *generator) rough(k kind, op *Op) {
	of := map[string][]string{
		"Node": {"drop=status", "drop=spec", "unknown=spec.unknown", "wrong=spec.unschedulable", "drop=status.nodeInfo"},
		"Pod":  {"unknown=spec.unknown", "drop=status"},
		"BareMetalHost": {
			"drop=spec.online", "drop=spec.bmc", "drop=spec", "drop=status", "drop=status.poweredOn", "blank=status.errorMessage", "blank=spec.bmc.address",
			"unknown=spec.unknown", "wrong=spec.online", "drop=status.provisioning", "blank=spec.bootMACAddress",
		},
		"Lease": {"drop=spec", "unknown=spec.unknown"},
	}[k.name]
	if op.As == "unstructured" && len(of) > 0 && g.chance(50) {
		op.Edit = append(op.Edit, pick(g, of...))
	}
}

// configuration returns an apply configuration as a user might write it.
func (g *generator) configuration(k kind) string {
	general := []string{
		`{}`, `{"metadata":{"labels":{"l":"1"}}}`, `{"metadata":{"labels":{"l":"2","m":"1"}}}`, `{"metadata":{"annotations":{"a":"1"}}}`,
		`{"metadata":{"finalizers":["fencelab.dev/a"]}}`, `{"metadata":{"labels":{"l":"not a label!"}}}`, `{"unknown":1}`, `{"metadata":{"resourceVersion":RV,"labels":{"l":"1"}}}`,
		`{"metadata":{"uid":UID}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"o","uid":"00000000-0000-0000-0000-00000000000f"}]}}`,
	}
	of := map[string][]string{
		"Node": {
			`{"spec":{"unschedulable":true}}`, `{"spec":{"taints":[{"key":"fencelab.dev/t","value":"1","effect":"NoExecute"}]}}`, `{"spec":{"taints":[{"key":"fencelab.dev/u","effect":"NoExecute"}]}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"applied"}]}}`, `{"spec":{"unschedulable":"yes"}}`, `{"spec":{"providerID":"p1"}}`,
		},
		"Lease":  {`{"spec":{"holderIdentity":"me"}}`, `{"spec":{"holderIdentity":"you","leaseDurationSeconds":5}}`, `{"spec":{"renewTime":"2024-05-06T07:08:09.123456Z"}}`},
		"Secret": {`{"data":{"k":"djE="}}`, `{"data":{"k":"djI=","x":"djI="}}`, `{"stringData":{"s":"x"}}`, `{"type":"Opaque"}`},
		"Event":  {`{"involvedObject":{"namespace":"default"},"message":"1"}`, `{"involvedObject":{"namespace":"default"},"count":3}`},
		"BareMetalHost": {
			`{"spec":{"online":true}}`, `{"spec":{"online":false}}`, `{"spec":{"online":true,"bmc":{"address":"redfish://1"}}}`, `{"spec":{"online":true,"consumerRef":{"name":"m"}}}`, `{"spec":{"bmc":{"address":"redfish://2"}}}`,
			`{"spec":{"online":"yes"}}`, `{"status":{"poweredOn":true,"provisioning":{}}}`, `{"status":{"poweredOn":false}}`, `{"status":{"errorMessage":"x","poweredOn":false,"provisioning":{"state":"provisioned"}}}`,
		},
	}[k.name]
	if len(of) > 0 && g.chance(60) {
		return pick(g, of...)
	}
	return pick(g, general...)
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
		`json:[{"op":"add","path":"/metadata/labels","value":{"l":"1"}}]`,
		`json:[{"op":"test","path":"/metadata/name","value":"other"}]`,
		`json:[{"op":"remove","path":"/metadata/labels"}]`,
		`json:[{"op":"replace","path":"/metadata/resourceVersion","value":OLDRV},{"op":"add","path":"/metadata/annotations","value":{"a":"2"}}]`,
		`json:{"op":"add"}`,
		`json:[]`,
	}
	of := map[string][]string{
		"Node": {
			`strategic:{"metadata":{"finalizers":["fencelab.dev/b"]}}`, `strategic:{"metadata":{"$patch":"replace","labels":{"l":"1"}}}`,
			`strategic:{"spec":{"taints":[{"key":"fencelab.dev/s","effect":"NoSchedule"}]}}`, `strategic:{"status":{"conditions":[{"type":"Ready","reason":"merged"}]}}`,
			`strategic:{"metadata":{"$deleteFromPrimitiveList/finalizers":["fencelab.dev/a"]}}`, `json:[{"op":"add","path":"/spec/unschedulable","value":true}]`,
			`json:[{"op":"replace","path":"/spec/unschedulable","value":"yes"}]`,
			`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`, `{"spec":null}`, `{"spec":{"taints":null}}`,
			`{"spec":{"unschedulable":"yes"}}`, `{"status":{"nodeInfo":{"bootID":"b"}}}`, `{"status":null}`,
			`strategic:{"metadata":{"annotations":{"a":"2"}}}`, `strategic:{"spec":{"unschedulable":true}}`,
		},
		"Pod":    {`{"spec":{"nodeName":"m"}}`, `{"status":{"phase":"Failed"}}`, `{"status":{"phase":"Running"}}`, `strategic:{"metadata":{"labels":{"l":null}}}`},
		"Lease":  {`{"spec":{"holderIdentity":"me"}}`, `{"spec":{"holderIdentity":null}}`, `{"spec":{"renewTime":"2024-05-06T07:08:09.123456Z"}}`, `{"spec":null}`},
		"Secret": {`{"data":{"k":"djE="}}`, `{"data":{"k":null}}`, `{"stringData":{"s":"x"}}`, `{"data":null}`, `{"data":{"k":5}}`},
		"Event":  {`{"count":3}`, `{"message":null}`},
		"BareMetalHost": {
			`json:[{"op":"replace","path":"/spec/online","value":true}]`, `json:[{"op":"remove","path":"/spec/online"}]`, `json:[{"op":"remove","path":"/status/poweredOn"}]`,
			`json:[{"op":"add","path":"/status/errorMessage","value":""}]`, `json:[{"op":"add","path":"/spec/bmc","value":{}}]`, `json:[{"op":"replace","path":"/spec/online","value":"yes"}]`,
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
