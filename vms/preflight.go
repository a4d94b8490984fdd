//go:build cgo && libvirt_dlopen

package vms

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Preflight finds out by trying whether a Lab can be opened with these assets: it opens libvirt's
// embedded driver, and it boots a guest under KVM if /dev/kvm is there (seconds at the first time
// after a boot of the machine). With the disk of real nodes it looks for what they need.
func Preflight(ctx context.Context, assets, disk string) []Finding {
	finding := func(subject string, needed bool, detail string, err error) Finding {
		if err != nil {
			detail = err.Error()
		}
		return Finding{Subject: subject, OK: err == nil, Needed: needed, Detail: detail}
	}
	version, err := emulatorVersion(ctx)
	findings := []Finding{finding("QEMU", true, version, err)}
	image, imageErr := LoadImage(assets)
	findings = append(findings, finding("guest image", true, assets, imageErr))
	if disk != "" {
		findings = append(findings, nodeFinding(assets, disk))
	}
	// libvirt's cache must not make an assets directory unasked.
	if imageErr != nil {
		return append(findings, finding("libvirt", true, "", fmt.Errorf("not tried without a guest image")))
	}
	h, err := connect(filepath.Join(assets, "libvirt"))
	detail := ""
	if err == nil {
		var v uint32
		if v, err = h.conn.GetLibVersion(); err == nil {
			kind := "embedded driver"
			if h.uri != "" {
				kind = "daemon"
			}
			detail = fmt.Sprintf("%s of libvirt %d.%d.%d", kind, v/1000000, v/1000%1000, v%1000)
		}
	}
	findings = append(findings, finding("libvirt", true, detail, err))
	if err != nil {
		return findings
	}
	scratch, err := os.MkdirTemp(h.dir, "preflight-*")
	if err != nil {
		return append(findings, finding("KVM", false, "", err))
	}
	defer os.RemoveAll(scratch)
	accelerator, reason, err := chooseAccelerator(ctx, image, assets, scratch, h.keeper.Mark())
	if err == nil && accelerator != KVM {
		err = fmt.Errorf("guests are emulated, which takes about three times as long: %s", reason)
	}
	return append(findings, finding("KVM", false, reason, err))
}

// nodeFinding looks for what real nodes need.
func nodeFinding(assets, disk string) Finding {
	f := Finding{Subject: "node image", Needed: true}
	image, err := filepath.EvalSymlinks(disk)
	if err == nil {
		_, err = exec.LookPath(imager)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(assets, "modules", "fs", "overlayfs")) // assets of before there were nodes lack it
	}
	if f.OK, f.Detail = err == nil, image; err != nil {
		f.Detail = fmt.Sprintf("%v; run make nodes", err)
	}
	return f
}

func emulatorVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, emulator, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w %s; run vms/assets.sh", emulator, err, out)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	// The version that a distribution ships says less than what it can do.
	if kinds, err := exec.CommandContext(ctx, emulator, "-netdev", "help").Output(); err != nil || !slices.Contains(strings.Fields(string(kinds)), "stream") {
		return "", fmt.Errorf("%s cannot connect to the lab's network (-netdev stream): install QEMU 7.2 or later", line)
	}
	return line, nil
}
