package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

func mountAll() error {
	for _, m := range []struct{ fs, dir string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.fs, err)
		}
		// Debian's kernel mounts devtmpfs by itself only on a real root, not on an initramfs; another may do both.
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s on %s: %w", m.fs, m.dir, err)
		}
	}
	return nil
}

// loadModules loads every module of the image; the image builder named them in the order of their dependencies.
func loadModules(config evidence.Config) error {
	paths, err := filepath.Glob(evidence.ModuleDir + "/*.ko")
	if err != nil {
		return err
	}
	for _, path := range paths {
		parameters := ""
		if strings.HasSuffix(path, "softdog.ko") {
			if config.Softdog == 0 {
				continue
			}
			parameters = fmt.Sprintf("soft_margin=%d", config.Softdog/time.Second)
		}
		if err := loadModule(path, parameters); err != nil {
			return err
		}
	}
	return nil
}

func loadModule(path, parameters string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load module %s %s: %w", path, parameters, err)
	}
	return nil
}

type watchdog struct{ device *os.File }

// openWatchdog starts the watchdog: opening the device arms it, and only a magic character before closing, which is
// never written here, would disarm it.
func openWatchdog() (*watchdog, error) {
	device, err := openBlocking("/dev/watchdog0", os.O_WRONLY)
	if err != nil {
		return nil, fmt.Errorf("arm watchdog: %w", err)
	}
	return &watchdog{device}, nil
}

func (w *watchdog) feed() error {
	if _, err := w.device.Write([]byte{0}); err != nil {
		return fmt.Errorf("feed watchdog: %w", err)
	}
	return nil
}

// The kernel's input_event on a 64-bit machine (linux/input.h): two words of time, type, code, value.
const (
	inputEventSize = 24
	evKey          = 1
	keyPower       = 116
)

// powerButton reports each press of the ACPI power button, which is what a BMC's graceful shutdown comes to.
func powerButton() (<-chan struct{}, error) {
	names, _ := filepath.Glob("/sys/class/input/event*/device/name")
	for _, path := range names {
		if name, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(name)) != "Power Button" {
			continue
		}
		event := filepath.Base(filepath.Dir(filepath.Dir(path)))
		device, err := openBlocking("/dev/input/"+event, os.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("listen to power button: %w", err)
		}
		presses := make(chan struct{})
		go func() {
			for buf := make([]byte, inputEventSize); ; {
				if _, err := io.ReadFull(device, buf); err != nil {
					return
				}
				kind, code := binary.NativeEndian.Uint16(buf[16:]), binary.NativeEndian.Uint16(buf[18:])
				if kind == evKey && code == keyPower && binary.NativeEndian.Uint32(buf[20:]) == 1 {
					presses <- struct{}{}
				}
			}
		}()
		return presses, nil
	}
	return nil, fmt.Errorf("listen to power button: no input device of that name")
}

// QEMU's user network is always the same: the guest at .15, the host's loopback at .2.
var (
	guestAddress = [4]byte{10, 0, 2, 15}
	hostAddress  = [4]byte{10, 0, 2, 2}
	netmask      = [4]byte{255, 255, 255, 0}
)

func configureNetwork() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure network: %w", err)
	}
	defer unix.Close(fd)
	card, err := networkCard()
	if err != nil {
		return err
	}
	for _, name := range []string{"lo", card} {
		if name != "lo" {
			for _, set := range []struct {
				request uint
				address [4]byte
			}{{unix.SIOCSIFADDR, guestAddress}, {unix.SIOCSIFNETMASK, netmask}} {
				if err := interfaceAddress(fd, set.request, name, set.address); err != nil {
					return fmt.Errorf("configure network: set address of %s: %w", name, err)
				}
			}
		}
		r, err := unix.NewIfreq(name)
		if err != nil {
			return fmt.Errorf("configure network: %w", err)
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return fmt.Errorf("configure network: bring %s up: %w", name, err)
		}
	}
	// struct rtentry of linux/route.h: all zero but the gateway and the flags is the default route.
	type rtentry struct {
		_       uint64
		dst     unix.RawSockaddrInet4
		gateway unix.RawSockaddrInet4
		genmask unix.RawSockaddrInet4
		flags   uint16
		_       [62]byte
	}
	const up, viaGateway = 1, 2
	route := rtentry{flags: up | viaGateway}
	route.dst.Family, route.genmask.Family, route.gateway.Family = unix.AF_INET, unix.AF_INET, unix.AF_INET
	route.gateway.Addr = hostAddress
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route))); errno != 0 {
		return fmt.Errorf("configure network: add default route: %w", errno)
	}
	return nil
}

func interfaceAddress(fd int, request uint, name string, address [4]byte) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := r.SetInet4Addr(address[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, request, r)
}

// networkCard waits for the one interface that isn't the loopback.
func networkCard() (string, error) {
	for {
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil {
			return "", fmt.Errorf("find network card: %w", err)
		}
		for _, e := range entries {
			if e.Name() != "lo" {
				return e.Name(), nil
			}
		}
		if uptime() > deviceTimeout {
			return "", fmt.Errorf("find network card: none after %v", deviceTimeout)
		}
		time.Sleep(devicePoll)
	}
}
