// Package evidence is the language between a guest and its host: the guest's configuration, which
// the host puts into the initramfs, and the lines of JSON that the two exchange over a
// virtio-serial port.
//
// The port is out of band: it is memory shared with the hypervisor, so neither a cut network nor a
// failed API server hides a guest from it. Each line is written with one write, so that several
// processes of a guest share the port.
package evidence

import (
	"net/netip"
	"path"
	"time"
)

const (
	// ConfigPath is where the guest finds its [Config].
	ConfigPath = "/config.json"
	// PortName is the virtio-serial port's name, found by the guest under /sys/class/virtio-ports.
	PortName = "fencelab.evidence"
	// ProgramPath is the executable of all [Program]s, ReadyFD the descriptor to which each writes
	// a byte when it is ready. One in a Pod says ProgramWaits at SocketPath as the first thing it
	// does, goes on when a byte has come back, says ProgramStarted there when it is ready, and
	// stays connected.
	ProgramPath = "/program"
	ReadyFD     = 3
	// ModuleDir holds the kernel modules that the guest loads, in the order of their names.
	ModuleDir = "/modules"
	// JournalName is the virtio-serial port for what the programs of a node log, SocketPath the
	// Unix socket at which the Pods of a node find the evidence port, in the file system of the
	// node and of the Pod.
	JournalName = "fencelab.journal"
	SocketPath  = "/run/fencelab/evidence"
	// StorageName is the virtio-serial port to the storage of a real node, which speaks 9P there.
	// StorageSocket is where the kernel finds it, in the file system of the node, and VolumeFile is
	// the one file of the volume.
	StorageName   = "fencelab.storage"
	StorageSocket = "/run/fencelab/storage"
	VolumeFile    = "written"
	// PodVariable gives a workload the UID of its Pod, and VolumeVariable, if it has a volume, the
	// path of the VolumeFile, to which it writes its boot and a number.
	PodVariable    = "POD_UID"
	VolumeVariable = "VOLUME_FILE"
	// ConsoleGreeting is the first line that PID 1 writes to the console: the machine executes user
	// code.
	ConsoleGreeting = "fencelab guest runs"
)

// Config is a guest's configuration, written when its initramfs is built.
type Config struct {
	Name      string        `json:"name"`               // of the host and of its Node
	Heartbeat time.Duration `json:"heartbeat"`          // between two heartbeats of PID 1 and of each workload
	Watchdog  time.Duration `json:"watchdog,omitempty"` // its margin, whole seconds; 0: there is none
	// WatchdogDevice says that it is the i6300ESB of the machine, and not softdog.
	WatchdogDevice bool `json:"watchdogDevice,omitempty"`

	Network  *Network  `json:"network,omitempty"` // nil: the network card stays down
	Kubelet  *Kubelet  `json:"kubelet,omitempty"` // nil: no kubelet runs
	Programs []Program `json:"programs,omitempty"`
}

// Program is a program of somebody else's that runs in the guest from when the network is up: the
// executable at [ProgramPath], which is given the path of its own configuration. On a real node it
// is one in a Pod: the kubelet starts it, from an image on the node's disk, and again whenever it
// ends.
type Program struct {
	Name  string `json:"name"`
	InPod bool   `json:"inPod,omitempty"`
	// FeedsWatchdog leaves the watchdog to it, which it arms by opening the device: an emulated
	// machine may take longer to start a large program than the watchdog waits.
	FeedsWatchdog bool `json:"feedsWatchdog,omitempty"`
}

// ConfigPath is where the program finds its configuration.
func (p Program) ConfigPath() string { return "/programs/" + p.Name }

// NodePath is where a Pod's program finds it, in the file system of the node: in its memory, like
// all that ends with a boot.
func (p Program) NodePath() string { return path.Join(path.Dir(SocketPath), p.ConfigPath()) }

// Network is the guest's place in the network of its hosts, and where the others are.
type Network struct {
	Address netip.Prefix          `json:"address"`
	Peers   map[string]netip.Addr `json:"peers,omitempty"` // other hosts, by name
}

// Kubelet configures the guest's kubelet, which speaks to a real kube-apiserver.
type Kubelet struct {
	Server     string            `json:"server"`               // base URL, such as https://10.0.2.2:6443
	ServerName string            `json:"serverName,omitempty"` // expected in the server's certificate if it isn't the URL's host
	CA         string            `json:"ca"`                   // PEM
	Token      string            `json:"token"`                // bearer token
	Node       string            `json:"node,omitempty"`       // its name; empty is that of the host
	Adopt      bool              `json:"adopt,omitempty"`      // runs the Pods of earlier Nodes of its name as well
	Labels     map[string]string `json:"labels,omitempty"`     // of the Node
	ProviderID string            `json:"providerID,omitempty"` // of the Node
	Lease      time.Duration     `json:"lease"`                // between two renewals of the Lease in kube-node-lease
	Status     time.Duration     `json:"status"`               // between two reports of the Ready condition
	Pods       time.Duration     `json:"pods"`                 // between two listings of the Node's Pods
	Grace      time.Duration     `json:"grace"`                // from SIGTERM to SIGKILL of a workload
	// Real has the real kubelet run, from the root file system of a node on the guest's disk. It
	// joins with Token, a bootstrap token, and knows neither Adopt nor Pods.
	Real bool `json:"real,omitempty"`
	// Storage is the CSI driver whose volumes a real node mounts; empty: it mounts none.
	Storage string `json:"storage,omitempty"`
	// Services are the addresses of Services, to which a real node has a route by way of Server;
	// zero: it has none.
	Services netip.Prefix `json:"services,omitzero"`
	// Registry is the base URL from which a real node pulls every image that it lacks, whatever
	// registry its name means.
	Registry string `json:"registry,omitempty"`
	// PodsFeed leaves the watchdog to Pods: it is armed when one of them opens the device.
	PodsFeed bool `json:"podsFeed,omitempty"`
}

// Kind says what a [Line] reports.
type Kind string

// What a guest reports. [Line.Process] is the name of the workload (its Pod's) or of the Program,
// empty for PID 1 and the kubelet.
const (
	Boot            Kind = "boot"             // PID 1 runs
	Heartbeat       Kind = "heartbeat"        // the process lives; Seq counts from 1 in each process
	KubeletStarted  Kind = "kubelet-started"  // the kubelet's process runs and has sent nothing yet: the boot is complete
	KubeletAgain    Kind = "kubelet-again"    // the kubelet's process runs again in the same boot, after StartKubelet
	KubeletStopped  Kind = "kubelet-stopped"  // the kubelet's process is gone, said by PID 1
	WorkloadStarted Kind = "workload-started" // the workload's process runs, said by itself; Detail is its Pod's UID
	WorkloadStopped Kind = "workload-stopped" // the workload's process is gone, said by the kubelet that waited for it; Detail as before
	Accepted        Kind = "accepted"         // a command was received and takes effect next; Detail names it
	ShuttingDown    Kind = "shutting-down"    // the ACPI power button was pressed; workloads are stopped next
	ShutdownIgnored Kind = "shutdown-ignored" // the power button was pressed and IgnoreShutdown holds
	Done            Kind = "done"             // last line of a graceful shutdown
	Asked           Kind = "asked"            // another guest's question came through the network; Detail is its host
	Answered        Kind = "answered"         // the answer to an Ask came through the network; Detail is the host that gave it
	// the process of a Program in a Pod asks PID 1 whether it may run
	ProgramWaits   Kind = "program-waits"
	ProgramStarted Kind = "program-started" // the process of a Program is ready, said by PID 1
	ProgramStopped Kind = "program-stopped" // the process of a Program is gone, said by PID 1
	PodStopped     Kind = "pod-stopped"     // what KillPod killed is gone; Detail is the UID of the Pod
	Trouble        Kind = "trouble"         // something failed in the guest; Detail says what
)

// Line is one line that the guest writes.
type Line struct {
	Kind    Kind          `json:"kind"`
	Boot    string        `json:"boot"` // /proc/sys/kernel/random/boot_id: one incarnation of the kernel
	Uptime  time.Duration `json:"uptime"`
	Process string        `json:"process,omitempty"`
	Seq     uint64        `json:"seq,omitempty"`
	Detail  string        `json:"detail,omitempty"`
}

// Command is an order of the host to the guest's PID 1, one a line. Its effect lasts until the
// boot ends.
type Command string

// The commands.
const (
	IgnoreShutdown Command = "ignore-shutdown" // a soft shutdown gets stuck
	ObeyShutdown   Command = "obey-shutdown"   // ends IgnoreShutdown; see Taking
	StopKubelet    Command = "stop-kubelet"    // the kubelet is killed and not started again; workloads run on
	StartKubelet   Command = "start-kubelet"   // ends StopKubelet: a kubelet runs again, and takes over the workloads
	StopFeeding    Command = "stop-feeding"    // the watchdog fires after its margin; a Program that feeds it is killed for good
	KillProgram    Command = "kill-program"    // as SIGKILL does; see Of
	StartProgram   Command = "start-program"   // one that was killed runs again, which one in a Pod may not before; see Of
	PauseProgram   Command = "pause-program"   // as SIGSTOP does; see Of
	ResumeProgram  Command = "resume-program"  // as SIGCONT does; see Of
	KillPod        Command = "kill-pod"        // on a real node, kills what runs in a Pod, and what its kubelet starts there again; see Of
	StartPod       Command = "start-pod"       // ends KillPod; see Of
	PausePod       Command = "pause-pod"       // what runs in a Pod stands still; see Of
	ResumePod      Command = "resume-pod"      // ends PausePod; see Of
	Hang           Command = "hang"            // all of user space freezes, the watchdog's feeder too
	Panic          Command = "panic"           // the kernel panics, and does not reboot
	DropVolumes    Command = "drop-volumes"    // the kubelet of this boot no longer reports what is mounted
	FillDisk       Command = "fill-disk"       // nothing can be written to the disk of a real node any more
	FreeDisk       Command = "free-disk"       // ends FillDisk
	SetClock       Command = "set-clock"       // the clock is so far from what it would be; see By
	Ask            Command = "ask"             // another guest is asked through the network, once; see Of
)

// Of is an Ask of that host, which has to be one of [Network.Peers], or a command that is about
// that Program, or the Pod of that UID.
func (c Command) Of(name string) Command { return c + " " + Command(name) }

// By is a SetClock by so much, ahead or, if negative, behind.
func (c Command) By(d time.Duration) Command { return c + " " + Command(d.String()) }

// Taking is an ObeyShutdown that lets each shutdown take at least d. Workloads are stopped at its
// beginning.
func (c Command) Taking(d time.Duration) Command { return c + " " + Command(d.String()) }
