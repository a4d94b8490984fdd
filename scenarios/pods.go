package scenarios

import (
	"github.com/fencelab/fencelab/scenarios/phrase"
	"path/filepath"
	"slices"
)

// Pods are the Pods of a DaemonSet of somebody's: agents that real kubelets run, on every host. Who creates the DaemonSet
// is a matter of the system: a program of it, or what it installs. What they ask of the API server passes fencelab.
type Pods struct {
	// serviceAccount is theirs, by which their requests are known. It is in the namespace of the hosts.
	ServiceAccount string `json:"serviceAccount"`
	// images are files that docker save writes. Kubelets pull what is in them from the lab, whatever registry their
	// names mean.
	Images []string `json:"images"`
	// installs are the files, and the directories of *.yaml files, with what is created before the hosts are switched on.
	Installs []string `json:"installs,omitempty"`
	// feedsWatchdog leaves the hosts' watchdogs to them: nobody else opens the device.
	FeedsWatchdog bool `json:"feedsWatchdog,omitempty"`
	// dir is the directory that relative names are found from. Left out: that of the file.
	Dir string `json:"dir,omitempty"`
}

// HasPods reports whether controllers are Pods.
func (s *Spec) HasPods() bool {
	return slices.ContainsFunc(s.Controllers, func(c Controller) bool { return c.Pods != nil })
}

// File is a file that they name.
func (p *Pods) File(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Dir, name)
}

// beside makes the names of their files those beside the file in dir that names them.
func (p *Pods) beside(dir string) {
	if p != nil && !filepath.IsAbs(p.Dir) {
		p.Dir = filepath.Join(dir, p.Dir)
	}
}

// pods checks what a controller says of its Pods. They have no settings and no part: whoever commands them has.
func (v *validator) pods(at string, c *Controller) {
	for _, no := range []struct {
		field string
		said  bool
	}{
		{"settings", c.Settings != nil}, {"overlay", len(c.Overlay) > 0}, {"replicas", c.Replicas != 0}, {"rateLimit", c.RateLimit != nil},
		{"plays", c.Plays != ""}, {"also", len(c.Also) > 0}, {"program", c.Program != nil},
	} {
		if no.said {
			v.bad(at+"."+no.field, "a controller that is Pods has none: leave this out")
		}
	}
	if !dnsLabel.MatchString(c.Name) {
		v.bad(at+".name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(c.Name))
	}
	if _, taken := v.vocab.Controllers[c.Name]; taken {
		v.bad(at+".name", "%s is a controller of fencelab's: give the Pods another name", c.Name)
	}
	at += ".pods"
	if !dnsLabel.MatchString(c.Pods.ServiceAccount) {
		v.bad(at+".serviceAccount", "%s is not the name of a ServiceAccount", phrase.Quote(c.Pods.ServiceAccount))
	}
	if len(c.Pods.Images) == 0 || slices.Contains(c.Pods.Images, "") {
		v.bad(at+".images", "name the files with their images")
	}
}
