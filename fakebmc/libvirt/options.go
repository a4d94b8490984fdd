package libvirt

// Options say which domains are served.
type Options struct {
	URI   string   // of the libvirt, such as qemu:///system
	Names []string // only these domains; empty is all, also those that are defined later
	// Images is a directory for the images that are fetched, which the hypervisor can
	// read. Empty takes local images only.
	Images string
	// Change is called when a domain came or went since Open, one at a time, also while
	// the libvirt was away; may be nil.
	Change func(d *Domain, gone bool)
}
