package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

func mountAll() error {
	for _, m := range []struct{ fs, dir string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.fs, err)
		}
		// Debian's kernel mounts devtmpfs by itself only on a real root, not on an initramfs;
		// another may do both.
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s on %s: %w", m.fs, m.dir, err)
		}
	}
	return nil
}

// loadModules loads every module of the image; the image builder named them in the order of their
// dependencies.
func loadModules(config evidence.Config) error {
	paths, err := filepath.Glob(evidence.ModuleDir + "/*.ko")
	if err != nil {
		return err
	}
	for _, path := range paths {
		parameters := ""
		for _, dog := range []struct {
			module, margin string
			wanted         bool
		}{{"softdog.ko", "soft_margin", !config.WatchdogDevice}, {"i6300esb.ko", "heartbeat", config.WatchdogDevice}} {
			switch {
			case !strings.HasSuffix(path, dog.module):
			case config.Watchdog == 0 || !dog.wanted:
				path = ""
			default:
				parameters = fmt.Sprintf("%s=%d", dog.margin, config.Watchdog/time.Second)
			}
		}
		if path == "" {
			continue
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

// openWatchdog starts the watchdog: opening the device arms it, and only a magic character before
// closing, which is never written here, would disarm it.
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

// The kernel's input_event on a 64-bit machine (linux/input.h): two words of time, type, code,
// value.
const (
	inputEventSize = 24
	evKey          = 1
	keyPower       = 116
)

// powerButton reports each press of the ACPI power button. A BMC's graceful shutdown presses it.
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
