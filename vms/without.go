//go:build !cgo || !libvirt_dlopen

package vms

import "context"

// Preflight finds that no Lab can be opened.
func Preflight(context.Context, string, string) []Finding {
	return []Finding{{Subject: "libvirt", Needed: true, Detail: "this fencelab was built without libvirt, and has no virtual machines; build it with make build"}}
}
