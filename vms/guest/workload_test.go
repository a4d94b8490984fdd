package main

import "testing"

// TestWorkloadOf distinguishes workloads from other processes in a guest.
func TestWorkloadOf(t *testing.T) {
	for _, tc := range []struct {
		cmdline, name, uid string
		ok                 bool
	}{
		{"/proc/self/exe\x00workload\x00bank\x00pod-1\x001s\x00", "bank", "pod-1", true},
		{"/proc/self/exe\x00kubelet\x00again\x00", "", "", false},
		{"/proc/self/exe\x00workload\x00", "", "", false},
		{"/init\x00", "", "", false},
		{"", "", "", false},
	} {
		if name, uid, ok := workloadOf([]byte(tc.cmdline)); name != tc.name || uid != tc.uid || ok != tc.ok {
			t.Errorf("%q is %q, %q, %t", tc.cmdline, name, uid, ok)
		}
	}
}
