// Package remediation is the machine remediation controller, the MRC of seed
// 002: it power-cycles the host of a Machine that was marked as unhealthy, and
// deletes the Machine's Node while the host is off.
//
// All its knowledge is in four annotations and objects, so that it resumes where it, or the
// process before it, stopped. It visits hosts, not Machines, so that a host is let go of even when
// its Machine has vanished. The cache only proposes: it acts only by a decision on the host, the
// Machine and the Node as the API server has them now.
//
// A Node is deleted because its host was read as off, and that reading ages: power may come back
// by itself. Each request has content of its own, and the reboot controller answers that content
// from a reading that began later (status.provisioning. heldOffFor), so the reading is no older
// than the request. A request is out of date when the Node reports another boot than the request
// names, which no crash makes this controller forget. It is also out of date when it was made too
// long ago, as far as this process knows by its own clock, for that boot may not have reached the
// API server. It is then made anew, and a host that is off answers it at once.
package remediation

// State is every fact that the decision about one host rests on.
type State struct {
	// NodeExists: the Machine has a nodeRef, and that Node exists.
	NodeExists bool `json:"nodeExists"`
	// Shared: another host may have this Node as well. Only with NodeExists and NeedsRemediation.
	Shared bool `json:"shared"`
	// NeedsRemediation: the Machine has the external-remediation annotation.
	NeedsRemediation bool `json:"needsRemediation"`
	// StatusOn is the host's status.poweredOn.
	StatusOn bool `json:"statusOn"`
	// RebootAnnotation: the host has this controller's reboot annotation.
	RebootAnnotation bool `json:"rebootAnnotation"`
	// AnswersRequest: the reboot controller found the host off after it had read
	// this very annotation, and holds it off. Implies RebootAnnotation.
	AnswersRequest bool `json:"answersRequest"`
	// Outdated: the host may have booted after it was off in answer to the
	// annotation, for the Node has another boot than it names, or a boot's time has
	// passed since it was set.
	Outdated bool `json:"outdated"`
	// PoweredOffMark: the Machine has the powered-off-for-remediation
	// annotation.
	PoweredOffMark bool `json:"poweredOffMark"`
	// Overdue: the host was let go of for longer than a Node may take to return,
	// and it has not. Only with PoweredOffMark.
	Overdue bool `json:"overdue"`
	// Tainted: the Node is called out of service, OwnTaint: by this controller. Emptied: nothing
	// is left on it that the taint releases. NodeReady: the kubelet of a later boot reports. Only
	// Taint asks.
	Tainted   bool `json:"tainted"`
	OwnTaint  bool `json:"ownTaint"`
	Emptied   bool `json:"emptied"`
	NodeReady bool `json:"nodeReady"`
	// Backed: the Machine keeps what this Node was, or the one that is gone, or, once no
	// remediation is wanted, whichever. Remade: this controller has made the Node. Emptied is then
	// about its name. Only Recreate asks.
	Backed bool `json:"backed"`
	Remade bool `json:"remade"`
	// Fenced: a StorageFence is to keep the host out. FenceHolds: it does. FenceEnding: it is to
	// let the host in again. FenceOver: it has. Only Fence asks.
	Fenced      bool `json:"fenced"`
	FenceHolds  bool `json:"fenceHolds"`
	FenceEnding bool `json:"fenceEnding"`
	FenceOver   bool `json:"fenceOver"`
}

// PoweredOn is the truth table's third column. Off counts only when it answers our request
// (design, decision 4): poweredOn may have been false before, and then the host could boot, or be
// up already, while its Node is deleted. The reboot controller answers sooner or later, off or on,
// so waiting for it blocks nothing. A host that is off for another reason, such as a power
// failure, counts as on until its power-off was requested: only then it is certain to stay off.
func (s State) PoweredOn() bool { return s.StatusOn || !s.AnswersRequest }

// Action is the one thing to do next.
type Action string

// The actions of the truth table, the action that a DeleteNode may wait for, and the two that
// KeepMark adds.
const (
	Nothing                Action = "Nothing"
	AddReboot              Action = "AddReboot"
	DeleteNode             Action = "DeleteNode"
	RemoveNeedsRemediation Action = "RemoveNeedsRemediation"
	RemoveReboot           Action = "RemoveReboot"
	// AskAgain gives the reboot annotation new content: the present answer is too old to delete a
	// Node by.
	AskAgain Action = "AskAgain"
	// AddPoweredOffMark marks the Machine: its Node is gone and its host is off.
	AddPoweredOffMark Action = "AddPoweredOffMark"
	// Finish removes that mark and the needs-remediation annotation, at once.
	Finish Action = "Finish"
)

// Actions is every action.
var Actions = []Action{
	Nothing, AddReboot, DeleteNode, RemoveNeedsRemediation, RemoveReboot, AskAgain, AddPoweredOffMark, Finish, TaintNode, UntaintNode, ForgetPoweredOff, BackUpNode, RecreateNode,
	FenceStorage, UnfenceStorage, ForgetFence,
}

// row is a line of the truth table in the order of its columns: does the Node
// exist, is there a needs-remediation annotation, is the host powered on, is
// there a reboot annotation.
type row [4]bool

// o and x read as the 0 and 1 of seed 002.
const (
	o = false
	x = true
)

// table is the truth table of seed 002, line by line, with its missing line added (design,
// decision 5).
var table = map[row]Action{
	{o, x, x, o}: AddReboot,
	{x, x, x, o}: AddReboot,
	{x, x, o, x}: DeleteNode,
	{o, o, x, o}: Nothing,
	{o, o, x, x}: Nothing,
	{o, x, o, o}: Nothing,
	{o, x, x, x}: Nothing,
	{x, o, o, o}: Nothing,
	{x, o, x, o}: Nothing,
	{x, o, x, x}: Nothing,
	{x, x, o, o}: Nothing,
	{x, x, x, x}: Nothing,
	{o, x, o, x}: RemoveNeedsRemediation,
	{o, o, o, x}: RemoveReboot,
	{x, o, o, x}: RemoveReboot,

	{o, o, o, o}: Nothing,
}

// Decide looks up what to do next about a host.
func Decide(s State) Action {
	action := table[s.row()]
	if action == DeleteNode && s.Outdated {
		return AskAgain
	}
	return action
}

func (s State) row() row {
	return row{s.NodeExists, s.NeedsRemediation, s.PoweredOn(), s.RebootAnnotation}
}

// keepMarkTable holds the lines in which KeepMark differs. Its fifth column is the powered-off
// mark.
var keepMarkTable = map[[5]bool]Action{
	{o, x, o, x, o}: AddPoweredOffMark,
	{o, x, o, x, x}: RemoveReboot,
	{o, x, x, o, x}: Nothing, // it boots
	{x, x, x, o, x}: Finish,

	// Somebody else removed the needs-remediation annotation.
	{o, o, x, o, x}: Finish,
	{x, o, x, o, x}: Finish,
}

// KeepMark decides like Decide, but leaves the needs-remediation annotation on the Machine until
// its Node is back. The truth table removes it while there is no Node, and a health check that
// calls a missing Node unhealthy at once then marks the Machine again, and again (design, decision
// 6; upstream openshift/cluster-api-provider-baremetal#59). A mark of our own on the Machine, like
// upstream's, distinguishes a Node that we deleted from one that never was. A boot that doesn't
// bring the Node back in time is followed by another (upstream
// openshift/cluster-api-provider-baremetal#119).
func KeepMark(s State) Action {
	r := s.row()
	if s.Overdue && r == (row{o, x, x, o}) {
		return AddReboot
	}
	if action, ok := keepMarkTable[[5]bool{r[0], r[1], r[2], r[3], s.PoweredOffMark}]; ok {
		return action
	}
	return Decide(s)
}
