package lab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/ironic"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
)

// Options say where a lab finds what it is made of.
type Options struct {
	// Assets is the directory that vms/assets.sh filled; empty: hosts.DefaultAssets.
	Assets string
	// Bin has etcd and kube-apiserver; empty: cluster.DefaultBin.
	Bin string
	// Cluster is the control plane: Embedded, Standard, Kind or Kubeconfig; empty is Embedded, but
	// for real nodes.
	Cluster string
	// Kubeconfig is the file of the cluster of one's own; needed for that, and for nothing else.
	Kubeconfig string
	// Hosts chooses the hosts: Guest, Node or Model; empty is Guest.
	Hosts string
	// Power is how controllers command the hosts: Redfish or Ironic; empty is Redfish, but for
	// stories whose topology has an Ironic.
	Power string
	// IronicEndpoint is the URL of an existing Ironic on this machine; empty: one of our own.
	IronicEndpoint string
	// IronicImage is the image that an Ironic of our own comes from; empty: what the plan names.
	IronicImage scenarios.Image
	ironic      scenarios.Ironic // how it behaves, and where it comes from
	// driver serves the CSI driver of the plan's volume; nil without one.
	driver func(socket string) error
	// Processes runs each controller as a process of its own instead of within this one.
	Processes bool
	// Executable is fencelab's, for Processes; empty: this process's.
	Executable string
	// Kept says that the lab is for people to work with, and judges nothing: other programs can
	// reach the hypervisor, and a controller that ends by itself is started again.
	Kept bool
	// Record has the lab note all deeds of the controllers, for Deeds, also what reaches their
	// caches.
	Record bool
	// Alone has the lab wait until nothing else that is heavy runs on this machine, and lets
	// nothing else begin.
	Alone bool
	// Shelf is from where an embedded control plane is taken, and where it goes again; nil: it is
	// the lab's own. Not for one that is kept.
	Shelf *cluster.Shelf
	// Log is called with each step of the lab; may be nil.
	Log io.Writer
	// Controllers holds the controllers that a plan can name; nil: fencelab's own.
	Controllers *controllers.Set
}

// A Part is something that a lab is made of, which its user chooses by a flag: one of
// several, the default first.
type Part struct {
	Flag string
	Of   []string
	Help string // with %s for what there is
	set  func(*Options, string)
}

// Parts are all of them.
var Parts = []Part{
	{"controllers", []string{InProcess, AsProcess}, "how the lab runs controllers: %s (a separate one each)",
		func(o *Options, way string) { o.Processes = way == AsProcess }},
	{"cluster", []string{Embedded, Standard, Kind, Kubeconfig}, "the lab's control plane: %s (standard has kube-controller-manager and kube-scheduler; kind is a container with kind; kubeconfig is your own cluster, see --kubeconfig)",
		func(o *Options, cluster string) { o.Cluster = cluster }},
	{"hosts", []string{Guest, Node, Model}, "what the lab's hosts are: %s (a node has containerd and a real kubelet, and implies --cluster standard, unless that is kind; a model is the simulator's, on this machine's clock)",
		func(o *Options, hosts string) { o.Hosts = hosts }},
	{"power", []string{Redfish, Ironic}, "how controllers command the lab's hosts: %s (which then owns the BMCs)",
		func(o *Options, power string) { o.Power = power }},
}

// These are the usage texts of the flags for Options.Kubeconfig, Options.IronicEndpoint and
// Options.IronicImage, which several verbs have.
const (
	KubeconfigUsage  = "kubeconfig file for --cluster kubeconfig, of a user who may do everything"
	IronicUsage      = "URL of an Ironic on this machine for --power ironic (default: the lab starts one)"
	IronicImageUsage = "container image with the Ironic that the lab starts: an archive, a directory with an OCI layout, or a reference (default: what the scenario names, or Debian's)"
)

// Choose makes the lab of a part.
func (o *Options) Choose(flag, value string) {
	for _, p := range Parts {
		if p.Flag == flag {
			p.set(o, value)
		}
	}
}

// cluster are the options of the control plane.
func (o Options) cluster() cluster.Options {
	c := cluster.Options{Bin: o.Bin}
	if o.ControlPlane() == Standard {
		c.Standard = &cluster.Standard{Driver: o.driver}
	}
	return c
}

// ControlPlane is the one that the lab has: Standard where real nodes would be to join Embedded,
// since without the standard controllers no real kubelet can.
func (o Options) ControlPlane() string {
	if o.realNodes() && (o.Cluster == "" || o.Cluster == Embedded) {
		return Standard
	}
	return cmp.Or(o.Cluster, Embedded)
}

// realNodes reports whether the hosts are real nodes: their kubelets are real, agents run in Pods,
// and everything takes longer, several boots at once above all.
func (o Options) realNodes() bool { return o.Hosts == Node }

// models reports whether the hosts are models, which run no programs and need no hypervisor.
func (o Options) models() bool { return o.Hosts == Model }

// ownIronic reports whether the lab starts an Ironic.
func (o Options) ownIronic() bool { return o.Power == Ironic && o.IronicEndpoint == "" }

// restartDelay is how long a controller is down at least.
const restartDelay = 500 * time.Millisecond

// podGC is how long kube-controller-manager takes at most to release the Pods of a Node that
// is gone. It looks every 20 seconds: from its first look it lets 40 pass, which its third
// look may find to be not quite over.
const podGC = 80 * time.Second

const (
	// podInterval and podGrace are the kubelets': how often they look at their Pods, and
	// how long a Pod may take to end.
	podInterval, podGrace = 500 * time.Millisecond, 5 * time.Second
)

// ironicSlack is for an Ironic, which looks at a host whose power is to change in intervals that
// grow, and then holds its lock a little longer.
const ironicSlack = 30 * time.Second

// actSlack is for what waits for no boot, so that no emulation of a host is in it: writes to the
// API and a command to a BMC. In a whole make e2e, on a machine up to four times as slow as that of
// docs/performance.md, a host was off 2 s after a hard request, and 3.5 s after what had hindered
// that. Ironic and other people's programs have their own pace.
const actSlack = 8 * time.Second

// slack is for a machine that emulates the hosts, or is busy with other things.
func (o Options) slack() time.Duration {
	slack := 20 * time.Second
	if o.realNodes() {
		slack = 90 * time.Second
	}
	if o.Power == Ironic {
		slack += ironicSlack
	}
	return slack
}

// readyWithin limits how long a program may take to come up. In Pods of real nodes it takes
// longer.
func (o Options) readyWithin() time.Duration {
	if o.realNodes() {
		return 6 * time.Minute
	}
	return 2 * time.Minute
}

// assets are where the machines come from.
func (o Options) assets() string { return cmp.Or(o.Assets, hosts.DefaultAssets()) }

// disk is that of real nodes, which vms/node/build.sh makes, or "" for other hosts.
func (o Options) disk() string {
	if !o.realNodes() {
		return ""
	}
	return filepath.Join(o.assets(), "node", "image")
}

// remedy is for what is missing.
func (o Options) remedy() string {
	switch {
	case o.Cluster == Kind && o.realNodes():
		return "run make kind nodes, or see fencelab doctor; --cluster standard needs no containers"
	case o.Cluster == Kind:
		return "run make kind, or see fencelab doctor; --cluster standard needs no containers"
	case o.ControlPlane() == Standard:
		return "run make nodes, or see fencelab doctor"
	case o.models():
		return "run make controlplane, or see fencelab doctor"
	}
	return "run make lab, or see fencelab doctor; --hosts model needs no virtual machines"
}

const noQuorum = "the lab's API server stands on none of its hosts"

// Capabilities lists everything that the lab can do at best: see Options.Capabilities.
var Capabilities = scenarios.Capabilities{
	World: "lab", Title: "lab",
	Lacks: map[scenarios.Feature]string{
		scenarios.FeatureQuorum:                   noQuorum,
		scenarios.Feature(history.QuorumLost):     noQuorum,
		scenarios.Feature(history.QuorumRegained): noQuorum,
		scenarios.FeatureNamesakes:                "the lab knows a host by the name of its Node, so each needs one of its own",
		scenarios.FeatureSpares:                   "the lab's hosts run when a story begins",
		scenarios.FeatureSeveral:                  "the lab runs one controller of a kind, or replicas that elect a leader",
		scenarios.FeaturePlaces:                   "the lab runs its controllers beside the API server",
		scenarios.FeatureDeviations:               "the lab's steps take their own time; its plans name deeds, and replay makes such a plan of this",
		scenarios.FeatureControllerLinks:          "the lab's network is that of the hosts",
		scenarios.FeatureLateRequests:             "in the lab, nothing is in flight to a server at that moment",
		scenarios.FeaturePausedWatchdog:           "the watchdog of a virtual machine stops with it",
		scenarios.FeatureControllerClocks:         "controllers have the clock of the machine that the lab is on",
		scenarios.FeatureClockRates:               "a virtual machine's clock runs at the rate of the machine that it is on",
		"moveBMC":                                 "the lab's BMCs are where they are served",
		"stopAgent":                               "the lab kills what runs on its hosts, and stops nothing in order",
		scenarios.FeatureIPMI:                     "the lab's controllers speak Redfish, not IPMI",
		scenarios.FeatureIPMIClient:               "the lab's controllers speak Redfish, not IPMI",
	},
}

// Capabilities returns what a lab with these options can do.
func (o Options) Capabilities() scenarios.Capabilities {
	can := Capabilities
	can.Lacks = maps.Clone(can.Lacks)
	if o.models() {
		can.Title = "lab with model hosts"
		can.Lacks["impair"] = "model hosts have no network of their own; run with --hosts guest or node"
		can.Lacks["setClock"] = "model hosts have the clock of the machine that the lab is on; run with --hosts guest or node"
		delete(can.Lacks, scenarios.FeaturePausedWatchdog) // its watchdog is a device of its own, unless the topology says otherwise
		for _, name := range [...]scenarios.Feature{scenarios.Feature(history.EvidenceLost), scenarios.Feature(history.EvidenceRegained)} {
			can.Lacks[name] = "a model has nothing between what happens to it and who sees that"
		}
	}
	if !o.realNodes() {
		can.Lacks["fillDisk"] = "only real nodes have disks; run with --hosts node"
		can.Lacks[scenarios.FeaturePods] = "only real nodes run the containers of Pods; run with --hosts node"
	} else {
		can.Lacks["dropVolume"] = "the kubelet of a real node says by itself what is in use; run with --hosts model"
		can.Lacks[scenarios.FeatureStops] = "a real node's containers stop as their programs do; run with --hosts guest or model"
	}
	if o.realNodes() && o.ControlPlane() != Standard {
		can.Lacks[scenarios.FeaturePods] = "in somebody's cluster the lab is not where their Pods look for the API server; run with --cluster standard"
	}
	if why := o.noVolumes(); why != "" {
		for _, name := range [...]scenarios.Feature{scenarios.FeatureVolume, "breakStorage", "mendStorage", "dropVolume", "fenceStorage", "unfenceStorage"} {
			can.Lacks[name] = why
		}
	}
	switch o.ControlPlane() {
	case Standard:
	case Kind, Kubeconfig:
		for _, name := range [...]scenarios.Feature{"apiOutage", "etcdOutage"} {
			can.Lacks[name] = "who runs in the cluster itself goes another way to the API server; run with --cluster embedded or standard"
		}
	default:
		can.Lacks[scenarios.FeatureOutOfService] = "only kube-controller-manager acts on an out-of-service taint; run with --cluster standard"
	}
	if !o.Processes {
		for _, name := range [...]scenarios.Feature{"pauseController", "resumeController"} {
			can.Lacks[name] = "a controller within fencelab's own process cannot stand still; run with --controllers process"
		}
	}
	return can
}

// noVolumes is why the lab has no volume that is attached to its host; empty if it has.
func (o Options) noVolumes() string {
	switch plane := o.ControlPlane(); {
	case !o.models() && !o.realNodes():
		return "the kubelets of small guests mount no volumes that are attached; run with --hosts model or node"
	case plane == Kind, plane == Kubeconfig:
		return "volumes are attached in clusters of the lab's own; run with --cluster embedded or standard"
	}
	return ""
}

// costs holds the number of slots of the machine that each part of a lab takes, hosts by the
// piece: see package slots. The load of each part during the story is in docs/performance.md.
var costs = map[string]int{
	Embedded: 2, Standard: 3, Kind: 4, Kubeconfig: 1,
	Guest: 1, Node: 2, Model: 0,
	Redfish: 0, Ironic: 1,
	InProcess: 0, AsProcess: 0,
}

// cost returns the number of slots that the lab of a plan takes.
func (o Options) cost(plan *scenarios.Plan) int {
	if o.Alone {
		return slots.All
	}
	cost := costs[o.ControlPlane()] + costs[cmp.Or(o.Hosts, Guest)]*len(plan.Spec.Topology.Hosts) + costs[cmp.Or(o.Power, Redfish)]
	for _, c := range plan.Spec.Controllers {
		if c.Program != nil || c.Pods != nil {
			cost++ // somebody else's, which may be anything
		}
	}
	return cost
}

// unattachable returns the reasons why a lab can't be made in an existing cluster, if the options
// ask for one.
func (o Options) unattachable() (reasons []string) {
	switch {
	case o.Cluster != Kubeconfig && o.Kubeconfig != "":
		return []string{"kubeconfig: it is for --cluster kubeconfig only"}
	case o.Cluster != Kubeconfig:
		return nil
	case o.Kubeconfig == "":
		return []string{"kubeconfig: name the file of the cluster with --kubeconfig"}
	case o.realNodes():
		reasons = append(reasons, "real nodes: they can join only a cluster that is the lab's own; run with --hosts guest or model")
	}
	if _, err := os.Stat(o.Kubeconfig); err != nil {
		reasons = append(reasons, "kubeconfig: "+err.Error())
	}
	return reasons
}

// Check returns a play.Missing error unless everything that a lab needs is here.
func Check(ctx context.Context, o Options) error {
	if runtime.GOOS != "linux" {
		return &play.Missing{World: "lab", Reasons: []string{"it runs on Linux, and this is " + runtime.GOOS}, Remedy: "play the scenario in the simulator here, or in the lab on Linux"}
	}
	reasons := o.unattachable()
	var findings []child.Finding
	switch o.Cluster {
	case Kubeconfig:
	case Kind:
		findings = kind.Preflight(ctx)
	default:
		findings = cluster.Preflight(ctx, o.cluster())
	}
	for _, f := range findings {
		if f.Remedy != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %s; %s", f.Name, f.State, f.Remedy))
		}
	}
	if !o.models() {
		for _, f := range vms.Preflight(ctx, o.assets(), o.disk()) {
			if f.Needed && !f.OK {
				reasons = append(reasons, fmt.Sprintf("%s: %s", f.Subject, f.Detail))
			}
		}
	}
	if o.ownIronic() && o.ironic.Image == "" {
		if err := ironic.Installed(o.ironic.Bin); err != nil {
			reasons = append(reasons, fmt.Sprintf("ironic: %v", err))
		}
	}
	if len(reasons) > 0 {
		return &play.Missing{World: "lab", Reasons: reasons, Remedy: o.remedy()}
	}
	return nil
}
