package kubetest

// A Sequence is a fact about the API server, and the requests that show it.
type Sequence struct {
	Name string
	// Fact states in one sentence what the transcript shows.
	Fact string
	Ops  []Op
}

// Sequences returns the facts that fencing leans on, and the smallest sequences
// on which the simulated server once differed from the real one.
//
// It is long because it is a table.
func Sequences() []Sequence {
	const (
		node, pod, lease, secret, event, host = "Node", "Pod", "Lease", "Secret", "Event", "BareMetalHost"
		budget, volume                        = "PodDisruptionBudget", "VolumeAttachment"
	)
	create := func(kind, name string, edit ...string) Op {
		return Op{Verb: "create", Kind: kind, Name: name, Edit: edit}
	}
	update := func(kind, name string, edit ...string) Op {
		return Op{Verb: "update", Kind: kind, Name: name, Edit: edit}
	}
	status := func(op Op) Op { op.Status = true; return op }
	stale := func(op Op) Op { op.Base = "previous"; return op }
	patch := func(kind, name, patch string, edit ...string) Op {
		return Op{Verb: "patch", Kind: kind, Name: name, Patch: patch, Edit: edit}
	}
	remove := func(kind, name string, conditions ...string) Op {
		return Op{Verb: "delete", Kind: kind, Name: name, If: conditions}
	}
	grace := func(op Op, seconds string) Op { op.Grace = seconds; return op }
	as := func(op Op, form string) Op { op.As = form; return op }
	by := func(op Op, manager string) Op { op.Manager = manager; return op }
	dry := func(op Op) Op { op.DryRun = true; return op }
	force := func(op Op) Op { op.Force = true; return op }
	get := func(kind, name string) Op { return Op{Verb: "get", Kind: kind, Name: name} }
	list := func(kind string, edit ...string) Op { return Op{Verb: "list", Kind: kind, Edit: edit} }
	managers := func(kind, name string) Op { return Op{Verb: "managers", Kind: kind, Name: name} }
	apply := func(kind, name, manager, configuration string) Op {
		return Op{Verb: "apply", Kind: kind, Name: name, Manager: manager, Patch: configuration}
	}
	bind := func(name string, conditions ...string) Op {
		return Op{Verb: "bind", Kind: pod, Name: name, If: conditions}
	}
	evict := func(name string, conditions ...string) Op {
		return Op{Verb: "evict", Kind: pod, Name: name, If: conditions}
	}
	running := func(name string, edit ...string) Op {
		return status(update(pod, name, append([]string{"status=1", "ready=True"}, edit...)...))
	}
	return []Sequence{
		{"stale update", "An update of an older version is a conflict, with and without status.", []Op{
			create(node, "a"), update(node, "a", "label=1"), stale(update(node, "a", "label=2")), status(stale(update(node, "a", "status=1"))),
			create(host, "a"), update(host, "a", "spec=1"), stale(update(host, "a", "spec=0")), status(stale(update(host, "a", "status=1"))),
		}},
		{"unconditional update", "Without resourceVersion an update wins for Nodes and Secrets, and is invalid for custom resources and Leases.", []Op{
			create(node, "a"), {Verb: "update", Kind: node, Name: "a", Version: "none", Edit: []string{"spec=1"}},
			create(secret, "a"), {Verb: "update", Kind: secret, Name: "a", Version: "none", Edit: []string{"spec=1"}},
			create(host, "a"), {Verb: "update", Kind: host, Name: "a", Version: "none", Edit: []string{"spec=1"}},
			{Verb: "update", Kind: host, Name: "a", Status: true, Version: "none", Edit: []string{"status=1"}},
			create(lease, "a"), {Verb: "update", Kind: lease, Name: "a", Version: "none", Edit: []string{"spec=1"}},
		}},
		{"uid of an update", "An update that carries the UID of an earlier object of that name is a conflict.", []Op{
			create(node, "a"), remove(node, "a"), create(node, "a"), {Verb: "update", Kind: node, Name: "a", Base: "first", Version: "none", Edit: []string{"spec=1"}},
			create(host, "a"), remove(host, "a"), create(host, "a"), {Verb: "update", Kind: host, Name: "a", Base: "first"},
		}},
		{"uid in a patch", "A patch may name the UID; a wrong one is an invalid change of an immutable field, not a conflict.", []Op{
			create(node, "a"), patch(node, "a", `{"metadata":{"uid":UID,"labels":{"l":"1"}}}`),
			patch(node, "a", `{"metadata":{"uid":"00000000-0000-0000-0000-0000000000ff","labels":{"l":"2"}}}`),
		}},
		{"delete by uid", "A deletion with the UID of an earlier object of that name does not touch the new one.", []Op{
			create(node, "a"), remove(node, "a", "uid"), create(node, "a"), remove(node, "a", "wrong-uid"), remove(node, "a", "uid"), remove(node, "a", "uid"),
		}},
		{"delete by version", "A deletion may require a resourceVersion.", []Op{
			create(host, "a"), update(host, "a", "spec=1"), remove(host, "a", "old-rv"), remove(host, "a", "rv"),
		}},
		{"no-op writes", "A write that changes nothing changes no version and is not watched.", []Op{
			create(node, "a"), update(node, "a"), patch(node, "a", `{"spec":{"unschedulable":null}}`), status(update(node, "a")),
			create(lease, "a", "time=1"), update(lease, "a", "time=1"), update(lease, "a", "empty"),
			create(host, "a"), update(host, "a"), status(update(host, "a")), status(update(host, "a")), patch(host, "a", `{}`),
		}},
		{"finalizers", "Deletion waits for finalizers; the name stays taken, a second deletion does nothing, none can be added, and the last one gone ends it.", []Op{
			create(host, "a", "finalizer+a", "finalizer+b"), remove(host, "a"), create(host, "a"), remove(host, "a"),
			update(host, "a", "finalizer-a"), {Verb: "update", Kind: host, Name: "a", Edit: []string{"finalizer+a"}},
			update(host, "a", "finalizer-b"), {Verb: "get", Kind: host, Name: "a"}, create(host, "a"),
		}},
		{"finalizers of a Node", "A Node's finalizer holds it, and a patch can take it away.", []Op{
			create(node, "a", "finalizer+a"), remove(node, "a", "uid"), patch(node, "a", "lock", "finalizer-a"), {Verb: "get", Kind: node, Name: "a"},
		}},
		{"status of a custom resource", "Its status is written through the subresource only, which takes nothing else.", []Op{
			create(host, "a", "status=2"), update(host, "a", "status=2", "spec=1"), status(update(host, "a", "status=1", "label=1", "spec=0")),
			patch(host, "a", `{"status":{"poweredOn":false}}`),
		}},
		{"status of a Node", "A Node is created with its status; later the subresource writes it, and the labels too.", []Op{
			create(node, "a", "status=1"), update(node, "a", "status=2", "spec=1"), status(update(node, "a", "status=2", "label=1", "spec=0", "finalizer+a")),
		}},
		{"first status", "An empty status is not an absent one: the first write of it is a write.", []Op{
			create(host, "a"), status(update(host, "a")), status(update(host, "a")),
			create(host, "b"), status(patch(host, "b", `{"status":{"errorMessage":"x"}}`)), status(patch(host, "b", `{"status":{"poweredOn":false}}`)),
			status(update(host, "b")), status(update(host, "b")),
		}},
		{"partial status", "The conflict of a patch is found before the field that it leaves out.", []Op{
			create(host, "a"), update(host, "a", "label=1"), status(stale(patch(host, "a", "lock", "status=2"))), status(patch(host, "a", "lock", "time=1")),
			status(patch(host, "a", "merge", "status=1")), status(patch(host, "a", `{"status":null}`)),
		}},
		{"locked patch", "A merge patch is conditional exactly when it names a resourceVersion.", []Op{
			create(host, "a"), update(host, "a", "label=1"), stale(patch(host, "a", "lock", "annotate=1")), stale(patch(host, "a", "merge", "annotate=1")),
			patch(host, "a", "lock", "annotate=2"), patch(host, "a", `{"metadata":{"resourceVersion":OLDRV,"annotations":{"a":"3"}}}`),
			patch(host, "a", `{"metadata":{"resourceVersion":null,"annotations":{"a":"3"}}}`),
			create(node, "a"), patch(node, "a", `{"metadata":{"resourceVersion":null,"annotations":{"a":"3"}}}`),
		}},
		{"merge patch", "Null deletes, lists are replaced, unknown fields vanish, wrong types are invalid, and it must be an object.", []Op{
			create(host, "a", "bmc=1", "consumer", "annotate=1", "finalizer+a"), patch(host, "a", `{"metadata":{"annotations":{"a":null,"b":"c"},"finalizers":["fencelab.dev/b"]}}`),
			patch(host, "a", `{"spec":{"bmc":null,"consumerRef":null,"unknown":1}}`), patch(host, "a", `{"spec":{"online":"yes"}}`), patch(host, "a", `{"spec":{"online":null}}`),
			patch(host, "a", `[]`), patch(host, "a", `{"metadata":{"name":"other"}}`), patch(host, "nobody", `{}`),
			create(node, "a", "taint=1"), patch(node, "a", `{"spec":{"taints":null,"unschedulable":"yes"}}`), patch(node, "a", `{"spec":null}`),
		}},
		{"strategic merge patch", "Custom resources don't support it.", []Op{
			create(node, "a", "label=1"), patch(node, "a", `strategic:{"metadata":{"labels":{"l":null,"m":"1"}},"spec":{"unschedulable":true}}`),
			create(host, "a"), patch(host, "a", `strategic:{"spec":{"online":true}}`),
		}},
		{"generation", "It counts changes of a custom resource's spec and its deletion, nothing else; no client can set it.", []Op{
			create(host, "a", "generation", "finalizer+a"), update(host, "a", "label=1", "generation"), update(host, "a", "spec=1"), status(update(host, "a", "status=1")),
			patch(host, "a", `{"metadata":{"generation":9}}`), remove(host, "a"), remove(host, "a"),
			create(node, "a", "generation"), update(node, "a", "spec=1"),
		}},
		{"immutable metadata", "Creation times are kept, deletion times can't be set.", []Op{
			create(host, "a"), update(host, "a", "created", "label=1"), update(host, "a", "deleting"), patch(host, "a", `{"metadata":{"deletionTimestamp":"2024-05-06T07:08:09Z"}}`),
		}},
		{"generated names", "The server appends five letters; a name that is given wins.", []Op{
			create(event, "g*"), create(event, "g*"), {Verb: "list", Kind: event},
		}},
		{"create with a version", "It is an internal error, checked after validity and before existence.", []Op{
			{Verb: "create", Kind: node, Name: "a", Version: "wrong"}, {Verb: "create", Kind: node, Name: "a", Version: "wrong", Edit: []string{"badlabel"}},
			create(node, "a"), {Verb: "create", Kind: node, Name: "a", Version: "wrong"}, create(node, "a"),
		}},
		{"validity", "Labels, finalizers and taints are checked.", []Op{
			create(node, "a", "badlabel"), create(node, "a", "badfinalizer"), create(node, "a", "twotaints"), create(node, "a"), update(node, "a", "badlabel"), update(node, "a", "twotaints"),
		}},
		{"new Node", "A new Node is tainted as not ready, its provider id can be set once.", []Op{
			create(node, "a", "taint=1"), update(node, "a", "provider=1"), update(node, "a", "provider=2"), create(node, "b", "capacity=1"), status(update(node, "b", "capacity=2")),
		}},
		{"put of a Lease", "It creates the Lease, but not under the UID of one that is gone.", []Op{
			update(lease, "a", "spec=1"), remove(lease, "a"), update(lease, "a", "spec=2"), {Verb: "update", Kind: lease, Name: "a", UID: "none", Edit: []string{"spec=2"}},
			update(lease, "a", "duration=0"),
		}},
		{"put of a Lease being deleted", "A creating PUT keeps a deletionTimestamp, which a deletion completes.", []Op{
			update(lease, "a", "finalizer+a", "deleting"), remove(lease, "a"), update(lease, "a", "finalizer-a"),
		}},
		{"times", "Times keep seconds, micro times microseconds.", []Op{
			create(lease, "a", "time=1"), create(node, "a", "status=1"), create(host, "a"), status(update(host, "a", "time=1")), status(update(host, "a", "zerotime")),
		}},
		{"secret", "stringData goes into data, the type can't change, and immutable means it.", []Op{
			create(secret, "a", "spec=1", "string=2"), update(secret, "a", "type"), patch(secret, "a", `{"data":{"k":null}}`), update(secret, "a", "nil"),
			update(secret, "a", "immutable"), update(secret, "a", "spec=2"), update(secret, "a", "label=1"),
		}},
		{"new pod", "It is pending, with defaults, and tolerates an unreachable node for five minutes.", []Op{
			create(pod, "a"), update(pod, "a", "nodename=m"), status(update(pod, "a", "status=1", "label=1", "nodename=m", "owner")), create(pod, "b", "toleration"),
		}},
		{"deletion of a pod", "A pod on a node is marked first; deleting it at once is two events.", []Op{
			create(pod, "a"), remove(pod, "a"), remove(pod, "a"), grace(remove(pod, "a"), "7"), grace(remove(pod, "a"), "1000"), grace(remove(pod, "a"), "0"),
			create(pod, "b"), status(update(pod, "b", "status=2")), remove(pod, "b"), create(pod, "c", "nodename="), remove(pod, "c", "uid"),
		}},
		{"finalizer of a pod", "A pod waits for its grace period and for its finalizers.", []Op{
			create(pod, "a", "finalizer+a"), grace(remove(pod, "a"), "7"), update(pod, "a", "finalizer-a"), grace(remove(pod, "a"), "0"),
			create(pod, "b", "finalizer+a"), grace(remove(pod, "b"), "0"), remove(pod, "b"), update(pod, "b", "finalizer-a"),
		}},
		{"selectors", "A live list selects by label, name and node.", []Op{
			create(pod, "a", "label=1"), create(pod, "b"), create(pod, "c", "nodename="), {Verb: "list", Kind: pod, Edit: []string{"label=1"}},
			{Verb: "list", Kind: pod, Edit: []string{"node=n"}}, {Verb: "list", Kind: pod, Edit: []string{"name=c"}}, {Verb: "list", Kind: pod},
		}},
		{"unstructured", "An unstructured object is what was sent: without a field, with an unknown one, with an empty one.", []Op{
			as(create(host, "a", "unknown=spec.unknown", "blank=spec.bmc.address"), "unstructured"), as(update(host, "a", "drop=spec.bmc"), "unstructured"),
			as(create(host, "b", "drop=spec.online"), "unstructured"), as(create(host, "c", "wrong=spec.online"), "unstructured"), as(create(host, "d", "drop=status.poweredOn"), "unstructured"),
			status(as(update(host, "a", "drop=status.poweredOn"), "unstructured")), as(create(node, "a", "drop=status"), "unstructured"), as(create(node, "b", "wrong=spec.unschedulable"), "unstructured"),
			as(get(host, "a"), "unstructured"), as(list(host), "unstructured"), as(patch(host, "a", "lock", "label=1"), "unstructured"), as(remove(host, "a"), "unstructured"),
		}},
		{"metadata", "Metadata alone can be read, patched and deleted, and not written whole.", []Op{
			create(host, "a", "label=1"), create(node, "a"), as(get(host, "a"), "metadata"), as(get(node, "a"), "metadata"), as(list(host), "metadata"), as(list(node), "metadata"),
			as(patch(host, "a", "merge", "label=2"), "metadata"), as(update(host, "a"), "metadata"), as(create(host, "b"), "metadata"), as(remove(host, "a"), "metadata"),
		}},
		{"apply", "Applying creates, changes what it says, and removes what the same manager no longer says.", []Op{
			apply(host, "a", "m", `{"metadata":{"labels":{"l":"1"}},"spec":{"online":true,"bmc":{"address":"redfish://1"}}}`), apply(host, "a", "m", `{"spec":{"online":true}}`), apply(host, "a", "m", `{"spec":{"online":true}}`),
			managers(host, "a"), apply(host, "b", "m", `{"spec":{"bmc":{}}}`), apply(host, "c", "", `{}`), apply(host, "a", "m", `{"spec":{"unknown":1}}`), apply(host, "a", "m", `{"spec":{"online":"yes"}}`),
		}},
		{"conflict of managers", "What another manager has set is a conflict, unless it is the same or the applier forces it.", []Op{
			create(node, "a", "spec=1", "label=1"), apply(node, "a", "m", `{"metadata":{"labels":{"l":"2"}}}`), apply(node, "a", "m", `{"metadata":{"labels":{"l":"1"}}}`), managers(node, "a"),
			apply(node, "a", "n", `{"spec":{"unschedulable":false}}`), force(apply(node, "a", "n", `{"spec":{"unschedulable":false}}`)), managers(node, "a"), update(node, "a", "label=2"), managers(node, "a"),
		}},
		{"lists of managers", "Two managers share a list whose schema has keys.", []Op{
			create(node, "a"), apply(node, "a", "m", `{"metadata":{"finalizers":["fencelab.dev/a"]}}`), apply(node, "a", "n", `{"metadata":{"finalizers":["fencelab.dev/b"]}}`), managers(node, "a"),
			apply(node, "a", "m", `{}`), get(node, "a"), status(apply(node, "a", "m", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)), managers(node, "a"),
		}},
		{"managers of writes", "Every write is managed by the name that it gives, its status apart; admission manages nothing.", []Op{
			by(create(host, "a", "bmc=1"), "m"), by(update(host, "a", "spec=1"), "n"), status(by(update(host, "a", "status=1"), "n")), by(patch(host, "a", "merge", "label=1"), "m"), managers(host, "a"),
			create(node, "a", "taint=1"), create(node, "b"), managers(node, "a"), managers(node, "b"), create(secret, "a", "string=1"), managers(secret, "a"), create(lease, "a", "time=1"), managers(lease, "a"),
		}},
		{"apply of a status", "The status is applied through the subresource, which creates nothing.", []Op{
			status(apply(host, "a", "m", `{"status":{"poweredOn":true,"provisioning":{}}}`)), create(host, "a"), status(apply(host, "a", "m", `{"status":{"poweredOn":true,"provisioning":{}}}`)),
			apply(host, "a", "m", `{"status":{"poweredOn":false}}`), status(apply(host, "a", "n", `{"spec":{"online":true}}`)), managers(host, "a"),
		}},
		{"apply to what is being deleted", "Applying a configuration without the finalizer ends a deletion.", []Op{
			apply(host, "a", "m", `{"metadata":{"finalizers":["fencelab.dev/a"]},"spec":{"online":true}}`), remove(host, "a"), apply(host, "a", "m", `{"spec":{"online":true}}`), get(host, "a"),
		}},
		{"json patch", "It may test, names what it removes, and is checked like any other.", []Op{
			create(host, "a", "label=1"), patch(host, "a", `json:[{"op":"test","path":"/spec/online","value":true}]`), patch(host, "a", `json:[{"op":"test","path":"/spec/online","value":false},{"op":"replace","path":"/spec/online","value":true}]`),
			patch(host, "a", `json:[{"op":"remove","path":"/metadata/annotations"}]`), patch(host, "a", `json:[{"op":"remove","path":"/spec/online"}]`), patch(host, "a", `json:[{"op":"replace","path":"/metadata/resourceVersion","value":OLDRV}]`),
			patch(host, "a", `json:{}`), create(node, "a"), patch(node, "a", `json:[{"op":"add","path":"/spec/unschedulable","value":"yes"}]`), patch(node, "a", `json:[{"op":"add","path":"/spec/taints/-","value":{"key":"k","effect":"NoExecute"}}]`),
		}},
		{"strategic merge of lists", "Lists with a key are merged by it, and directives are obeyed.", []Op{
			create(node, "a", "finalizer+a", "taint=1"), patch(node, "a", `strategic:{"metadata":{"finalizers":["fencelab.dev/b"]}}`), patch(node, "a", `strategic:{"metadata":{"$deleteFromPrimitiveList/finalizers":["fencelab.dev/a"]}}`),
			status(patch(node, "a", `strategic:{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)), status(patch(node, "a", `strategic:{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"DiskPressure","status":"False"}]}}`)),
			patch(node, "a", `strategic:{"metadata":{"labels":{"l":"1","$patch":"replace"}}}`), patch(node, "a", `strategic:{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`),
		}},
		{"dry run", "It is checked and answered like the request itself, and nothing is stored.", []Op{
			dry(create(host, "a")), create(host, "a"), dry(create(host, "a")), dry(update(host, "a", "spec=1")), dry(patch(host, "a", "merge", "label=1")), dry(apply(host, "a", "m", `{"spec":{"online":true}}`)),
			dry(remove(host, "a")), get(host, "a"), dry(remove(host, "a", "wrong-uid")), create(pod, "a"), dry(remove(pod, "a")), get(pod, "a"),
		}},
		{"pages", "A list comes in pages of the state that the first one saw.", []Op{
			create(secret, "a", "mine"), create(secret, "b", "mine"), create(secret, "c", "mine"), list(secret, "limit=2"), list(secret, "limit=1"), list(secret, "limit=3"), as(list(secret, "limit=2"), "unstructured"), list(secret, "continue=x"),
		}},
		{"fields", "Objects are selected by the fields that their kind has for that; no other one is.", []Op{
			create(node, "a", "spec=1"), create(node, "b"), list(node, "field=spec.unschedulable:true"), list(node, "field=metadata.name:!x", "field=spec.unschedulable:false"), list(node, "field=spec.providerID:p"), list(node, "field=metadata.namespace:x"),
			create(pod, "a"), list(pod, "field=status.phase:Pending"), list(pod, "field=spec.nodeName:!n"), create(secret, "a"), list(secret, "field=type:Opaque"), create(host, "a"), list(host, "field=spec.online:true"),
		}},
		{"delete all", "A collection is deleted object by object, and finalizers hold.", []Op{
			create(host, "a", "mine"), create(host, "b", "mine", "finalizer+a"), create(host, "c"), {Verb: "deleteall", Kind: host, Edit: []string{"mine"}}, list(host), create(node, "a", "mine"), {Verb: "deleteall", Kind: node, Edit: []string{"mine"}}, list(node),
		}},
		{"eviction", "An eviction marks a pod and deletes it with its grace period; one that has ended goes at once.", []Op{
			create(pod, "a"), evict("a"), get(pod, "a"), evict("a"), grace(evict("a"), "7"), grace(remove(pod, "a"), "0"), evict("a"),
			create(pod, "b"), running("b"), evict("b", "wrong-uid"), evict("b", "uid"), create(pod, "c"), status(update(pod, "c", "status=2")), evict("c"),
			create(pod, "d", "finalizer+a"), running("d"), evict("d", "uid"), get(pod, "d"), create(pod, "e"), grace(evict("e"), "0"),
		}},
		{"binding", "A pod is bound once, while it isn't being deleted, and its spec counts no change by that.", []Op{
			create(pod, "a", "nodename="), bind("a", "wrong-uid"), bind("a", "uid"), get(pod, "a"), bind("a"), bind("x"),
			create(pod, "b", "nodename=", "annotate=1"), bind("b"), get(pod, "b"), running("b"), create(pod, "c", "nodename=", "finalizer+a"), remove(pod, "c"), bind("c"),
		}},
		{"budget", "A budget's status is reset when it is created, and a change of its spec counts.", []Op{
			create(budget, "a", "minimum=1", "allowed=1"), update(budget, "a", "minimum=0", "allowed=2"), status(update(budget, "a", "allowed=1", "minimum=1", "label=1")), status(update(budget, "a", "negative")),
			create(budget, "b", "minimum=1", "maximum"), create(budget, "b", "percent=500"), create(budget, "b", "percent=50"), {Verb: "update", Kind: budget, Name: "b", Version: "none", Edit: []string{"minimum=1"}},
			apply(budget, "c", "m", `{"spec":{"minAvailable":1,"selector":{"matchLabels":{"l":"1"}}}}`), managers(budget, "c"), remove(budget, "b"),
		}},
		{"eviction and budget", "A pod that runs is evicted only where its budget allows a disruption, which then is one less.", []Op{
			create(pod, "a", "mine"), create(budget, "b", "minimum=1", "covers"), running("a"), status(update(budget, "b", "allowed=0", "healthy=1")), evict("a"), get(pod, "a"),
			status(update(budget, "b", "allowed=0", "healthy=2")), evict("a"), status(update(budget, "b", "allowed=1")), evict("a", "wrong-uid"), get(budget, "b"), status(update(budget, "b", "allowed=2")), evict("a"), get(budget, "b"), evict("a"),
			create(pod, "c"), running("c"), evict("c"),
		}},
		{"eviction of a sick pod", "One that is not ready may go where enough others are healthy, or its budget says so.", []Op{
			create(pod, "a", "mine"), status(update(pod, "a", "status=1", "ready=False")), create(budget, "b", "minimum=1", "covers"), status(update(budget, "b", "allowed=0")), evict("a"), status(update(budget, "b", "healthy=2")), evict("a"), get(budget, "b"),
			create(pod, "c", "mine"), status(update(pod, "c", "status=1")), status(update(budget, "b", "healthy=0")), evict("c"), update(budget, "b", "always"), status(update(budget, "b", "allowed=0")), evict("c"),
		}},
		{"two budgets", "A pod of two budgets can't be evicted; one without a selector is none.", []Op{
			create(pod, "a", "mine"), running("a"), create(budget, "b", "minimum=0", "covers"), create(budget, "c", "minimum=0", "covers"), evict("a"), update(budget, "c", "nothing"), status(update(budget, "b", "allowed=1")), evict("a"),
			create(pod, "d", "mine"), running("d"), update(budget, "b", "nothing"), update(budget, "c", "covers"), status(update(budget, "c", "allowed=1")), evict("d"), remove(budget, "c"), remove(budget, "b"), evict("d"),
		}},
		{"attachment of a volume", "Its spec never changes, and its status says whether it is attached; the status leaves metadata alone.", []Op{
			create(volume, "a", "attached=1"), status(update(volume, "a", "attached=1", "label=1", "nodename=m")), update(volume, "a", "attached=0", "label=1"), update(volume, "a", "nodename=m"), create(volume, "b", "attacher="), create(volume, "b", "volume="),
			patch(volume, "a", "lock", "finalizer+a"), remove(volume, "a"), status(update(volume, "a", "attached=0")), {Verb: "update", Kind: volume, Name: "a", Version: "none", Edit: []string{"finalizer-a"}}, update(volume, "a", "finalizer-a"), list(volume),
		}},
		{"not found", "Errors name the resource and the object.", []Op{
			{Verb: "get", Kind: host, Name: "a"}, update(host, "a"), status(update(host, "a")), patch(host, "a", "merge", "label=1"), remove(host, "a"), update(node, "a"),
		}},
	}
}
