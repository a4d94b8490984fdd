package lab

// The control planes of a lab, as the command line calls them. Embedded is an API server,
// beside which stand-ins do what the standard controllers of Kubernetes would; Standard is the
// same with kube-controller-manager and kube-scheduler; Kind is a cluster that kind makes in a
// container; Kubeconfig is one of somebody's own, whatever it runs.
const Embedded, Standard, Kind, Kubeconfig = "embedded", "standard", "kind", "kubeconfig"

// The ways in which a lab runs controllers, as the command line calls them; see
// Options.Processes.
const InProcess, AsProcess = "in-process", "process"

// What the hosts of a lab are made of, as the command line calls it; see Options.Hosts.
const Guest, Node, Model = "guest", "node", "model"

// How controllers command the power of hosts; see Options.Power.
const Redfish, Ironic = "redfish", "ironic"
