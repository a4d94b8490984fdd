package scenarios

// Feature is something that a plan can ask for and a world may lack: an operation by
// its name, an event by its kind, what a fault of a BMC needs, or one of those below.
type Feature string

// Features beside operations, events and needs.
const (
	// FeatureDeviations are a schedule's, of steps of the simulator, and FeatureDeeds those of
	// steps that are named by what is done.
	FeatureDeviations Feature = "deviations"
	FeatureDeeds      Feature = "deviations of deeds"
	// FeatureReplicas are several processes of a controller, which elect a leader.
	FeatureReplicas Feature = "replicas"
	// FeatureSeveral are several controllers of a kind, each with settings of its own.
	FeatureSeveral Feature = "several"
	// FeatureQuorum is a store of the API server that stands on hosts.
	FeatureQuorum Feature = "role"
	// FeatureNamesakes are hosts whose Nodes have one name.
	FeatureNamesakes Feature = "nodeName"
	// FeatureSpares are hosts that are off when the story begins.
	FeatureSpares Feature = "off"
	// FeaturePlaces are controllers that run on a host.
	FeaturePlaces Feature = "hosts"
	// FeaturePrograms are executables in the place of controllers.
	FeaturePrograms Feature = "program"
	// FeaturePods are Pods that real kubelets run as controllers.
	FeaturePods Feature = "pods"
	// FeatureControllerLinks are cuts of controllers' links, to the API server and to BMCs.
	FeatureControllerLinks Feature = "controllerLinks"
	// FeatureStaleLists and FeatureLateRequests are the possible remains of a crash: old lists, and
	// requests that are on their way when it comes at once.
	FeatureStaleLists   Feature = "staleBy"
	FeatureLateRequests Feature = "lateBy"
	// FeatureIronic is an Ironic that owns the BMCs.
	FeatureIronic Feature = "ironic"
	// FeatureIPMI is a controller that commands BMCs by IPMI, and FeatureIPMIClient is one for a
	// fault that bends only IPMI.
	FeatureIPMI       Feature = "via"
	FeatureIPMIClient Feature = "ipmi"
	// FeatureStops are Pods that take their time to stop.
	FeatureStops Feature = "stops"
	// FeatureBMC is somebody else's program in the place of the BMCs.
	FeatureBMC Feature = "bmc"
	// FeatureVolume is a workload that writes to a volume which is attached to its host.
	FeatureVolume Feature = "volume"
	// FeatureVolumes are Pods that have volumes.
	FeatureVolumes Feature = "volumes"
	// FeatureOutOfService is a cluster that acts on the taint of that name.
	FeatureOutOfService Feature = "outOfService"
	// FeatureForeignFields covers the fields of a system's own definitions.
	FeatureForeignFields Feature = "foreign"
	// FeaturePausedWatchdog is the watchdog of a host that is paused, and goes on waiting.
	FeaturePausedWatchdog Feature = "watchdog of a paused host"
	// FeatureControllerClocks are clocks of controllers' own, FeatureClockRates clocks that run
	// fast or slow.
	FeatureControllerClocks Feature = "controllerClocks"
	FeatureClockRates       Feature = "clockRates"
)
