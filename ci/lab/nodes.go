package lab

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/fencelab/fencelab/ci/lab/hosts"
)

// nodeSlack is for the boots of real nodes, several at once where they are emulated.
const nodeSlack = 90 * time.Second

// assets are where the machines come from.
func (o Options) assets() string { return cmp.Or(o.Assets, hosts.DefaultAssets()) }

// disk is that of real nodes, which vms/node/build.sh makes, or "" for other hosts.
func (o Options) disk() string {
	if o.Hosts != Node {
		return ""
	}
	return filepath.Join(o.assets(), "node", "image")
}

// remedy is for what is missing.
func (o Options) remedy() string {
	switch {
	case o.Cluster == Kind && o.Hosts == Node:
		return "run make kind nodes, or see fencelab doctor; --cluster standard needs no containers"
	case o.Cluster == Kind:
		return "run make kind, or see fencelab doctor; --cluster standard needs no containers"
	case o.ControlPlane() == Standard:
		return "run make nodes, or see fencelab doctor"
	case o.Hosts == Model:
		return "run make controlplane, or see fencelab doctor"
	}
	return "run make lab, or see fencelab doctor; --hosts model needs no virtual machines"
}
