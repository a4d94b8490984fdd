package vms

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// Accelerator is how a guest's instructions are executed, as QEMU and libvirt name it.
type Accelerator string

// The accelerators.
const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "qemu" // emulation; libvirt calls it by the emulator's name
)

// kvmTimeout is far above a KVM guest's way to user space (under a second) even on a busy machine.
const kvmTimeout = 10 * time.Second

const emulator = "qemu-system-x86_64"

// chooseAccelerator returns KVM only where a guest has reached user space under it. That /dev/kvm
// opens proves nothing: there are machines where it does and a guest then hangs in its firmware.
// The verdict, with its reason, is kept in the assets directory until the machine boots again. env
// is added to the environment of the QEMU that is tried.
func chooseAccelerator(ctx context.Context, image *Image, assets, scratch string, env ...string) (Accelerator, string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", "", fmt.Errorf("read this machine's boot id: %w", err)
	}
	key := strings.TrimSpace(string(boot))
	cache := filepath.Join(assets, fmt.Sprintf("kvm-verdict-%d", os.Getuid())) // not everybody may open /dev/kvm
	if text, err := os.ReadFile(cache); err == nil {
		if lines := strings.SplitN(string(text), "\n", 3); len(lines) == 3 && lines[0] == key {
			return Accelerator(lines[1]), lines[2], nil
		}
	}
	verdict, reason := KVM, "a test guest reached user space under KVM"
	if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		verdict, reason = TCG, err.Error()
	} else {
		kvm.Close()
		if err := testBoot(ctx, image, scratch, env); err != nil {
			if ctx.Err() != nil {
				return "", "", fmt.Errorf("test KVM: %w", ctx.Err())
			}
			verdict, reason = TCG, err.Error()
		}
	}
	keepFile(cache, fmt.Appendf(nil, "%s\n%s\n%s", key, verdict, reason))
	return verdict, reason, nil
}

// testBoot boots the guest under KVM until PID 1 greets on the console.
func testBoot(ctx context.Context, image *Image, scratch string, env []string) error {
	initramfs := filepath.Join(scratch, "kvm-test.cpio")
	if err := image.WriteInitramfs(initramfs, evidence.Config{Name: "kvm-test", Heartbeat: time.Second}, "", nil); err != nil {
		return err
	}
	defer os.Remove(initramfs)
	ctx, cancel := context.WithTimeout(ctx, kvmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, emulator, "-accel", "kvm", "-cpu", "host", "-m", "192", "-nodefaults", "-no-user-config",
		"-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", image.Kernel, "-initrd", initramfs, "-append", kernelArguments)
	cmd.Env = append(os.Environ(), env...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	console, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("test KVM: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("test KVM: %w", err)
	}
	greeted := false
	for lines := bufio.NewScanner(console); !greeted && lines.Scan(); {
		greeted = strings.Contains(lines.Text(), evidence.ConsoleGreeting)
	}
	cmd.Process.Kill()
	cmd.Wait()
	switch {
	case greeted:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("a guest under KVM does not reach user space within %v", kvmTimeout)
	default:
		return fmt.Errorf("a guest does not start under KVM: %s", strings.TrimSpace(complaint.String()))
	}
}
