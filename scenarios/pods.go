package scenarios

import "path/filepath"

// Pods are the Pods of a DaemonSet of somebody's: agents that real kubelets run, on every host. The
// system creates the DaemonSet, by a program of it or by what it installs. What they ask of the API
// server passes fencelab.
type Pods struct {
	// serviceAccount is theirs, by which their requests are known. It is in the namespace of the
	// hosts.
	ServiceAccount string `json:"serviceAccount"`
	// images are files that docker save writes. Kubelets pull what is in them from the lab,
	// whatever registry their names mean.
	Images []string `json:"images"`
	// installs are the files, and the directories of *.yaml files, with what is created before the
	// hosts are switched on.
	Installs []string `json:"installs,omitempty"`
	// feedsWatchdog leaves the hosts' watchdogs to these pods: nothing else opens the device.
	FeedsWatchdog bool `json:"feedsWatchdog,omitempty"`
	// dir is the directory that relative names are found from. Left out: that of the file.
	Dir string `json:"dir,omitempty"`
}

// File is a file that they name.
func (p *Pods) File(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Dir, name)
}
