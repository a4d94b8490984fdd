//go:build cgo && libvirt_dlopen

package vms

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestDomainXML(t *testing.T) {
	for name, accelerator := range map[string]Accelerator{"kvm": KVM, "qemu": TCG, "node": TCG} {
		t.Run(name, func(t *testing.T) {
			s := spec{
				name: "fencelab-worker-1", uuid: "6c5b4d0e-9b8a-4d2f-8a3b-0123456789ab", accelerator: accelerator,
				emulator: "/usr/bin/qemu-system-x86_64", memoryMiB: 160, kernel: "/assets/kernel", initramfs: "/lab/0.cpio",
				console: "/evidence/worker-1.console", port: "/lab/0.port", network: "/lab/0,1.network", mac: "52:54:00:01:02:03",
			}
			if name == "node" {
				s.disk, s.journal, s.storage, s.memoryMiB = "/lab/0,1.qcow2", "/evidence/worker-1.journal", "/lab/0.storage", memoryOfNode
			}
			got, err := domainXML(s)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(golden, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got+"\n" != string(want) {
				t.Errorf("differs from %s (rewrite with -update):\n%s", golden, got)
			}
		})
	}
}
