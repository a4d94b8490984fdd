package history

// Lacks returns the name of the first field that an event of its kind must have and this one has
// not, or "". A history with such an event is no evidence: it may have a Node deleted without
// saying on which host.
func (e *Event) Lacks() string {
	switch e.Kind {
	case PowerOn, PowerOff, WatchdogFired, HostPaused, HostResumed, BMCCommand, BMCFault:
		return first(e.Host, "host")
	case BootStarted, BootComplete, BootEnded, WatchdogDisarmed:
		return first(e.Host, "host", e.Boot, "boot")
	case WorkloadStarted, WorkloadStopped, PowerReported, OnlineWanted, ProvisioningState,
		LastPoweredOn, PendingRebootSince, HeldOffFor, PowerError, HostConsumer, HostReleased, MachineNode,
		BareMetalHostCreated, BareMetalHostDeleted, MachineCreated, MachineDeleted, MachineDeleting, DeletionPhase, DrainTimeout, DetachTimeout:
		return first(e.Host, "host", e.Object, "object")
	case VolumeAttached, VolumeDetached, VolumeFenced, VolumeUnfenced, StorageFenceAsked, StorageUnfenceAsked:
		return first(e.Host, "host", e.Object, "object")
	case VolumeMounted, VolumeUnmounted, VolumeWritten:
		return first(e.Host, "host", e.Boot, "boot", e.Object, "object")
	case DetachAsked:
		return first(e.Host, "host", e.Object, "object", e.Value, "value")
	case FenceRequested, FenceEnded:
		return first(e.Host, "host", e.Object, "object", e.Value, "value")
	case LinkCut, LinkRestored, LinkImpaired:
		if e.From != "" {
			return first(e.To, "to")
		}
		return first(e.Host, "host", e.Object, "object")
	case NodeCreated, NodeDeleted, NodeDeleting, NodeReady, NodeNotReady, NodeLabels, NodeTaints, NodeAnnotations, NodeNetwork, NodeCordoned, NodeUncordoned, NodeOutOfService, NodeInService, VolumesInUse, PodBound:
		return first(e.Host, "host", e.Object, "object", e.UID, "uid")
	case SpecChanged:
		return first(e.Host, "host", e.Object, "object", e.Key, "key")
	case NodeCondition, MachineCondition:
		return first(e.Host, "host", e.Object, "object", e.UID, "uid", e.Key, "key")
	case NodeTakenOver:
		return first(e.Host, "host", e.Object, "object", e.UID, "uid", e.Value, "value")
	case PodProtected, PodUnprotected, FinalizerAdded, FinalizerRemoved:
		return first(e.Host, "host", e.Object, "object", e.UID, "uid", e.Key, "key")
	case PodDeleted, PodTerminating: // one that was never bound has no host
		return first(e.Object, "object", e.UID, "uid")
	case Stamped:
		return first(e.Host, "host", e.Object, "object", e.Key, "key")
	case ControllerStopping:
		return first(e.Host, "host", e.Actor, "actor")
	case ControllerPanicked:
		return first(e.Actor, "actor")
	case CheckChanged:
		return first(e.Object, "object")
	case FieldIs:
		return first(e.Object, "object", e.Key, "key")
	case AnnotationSet, AnnotationRemoved:
		return first(e.Host, "host", e.Object, "object", e.Key, "key")
	}
	return ""
}

// first returns the name behind the first empty value of value, name pairs.
func first(pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "" {
			return pairs[i+1]
		}
	}
	return ""
}
