//go:build cgo && libvirt_dlopen

package vms

import (
	"strings"
	"testing"
)

// The kernel takes a path of at most 107 bytes (unix(7)).
func TestSocketsFit(t *testing.T) {
	longest := "/" + strings.Repeat("d", 107-len(deepest)-1)
	if err := fits(longest); err != nil {
		t.Errorf("%d bytes: %v", len(longest), err)
	}
	if err := fits(longest + "d"); err == nil || !strings.Contains(err.Error(), "1 bytes too long") {
		t.Errorf("%d bytes: %v", len(longest)+1, err)
	}
}
