package vms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// Image is the kernel and the initramfs that every guest boots. The initramfs lacks only the
// guest's own configuration.
type Image struct {
	Kernel    string // path
	initramfs []byte
}

// LoadImage builds the image from a directory that vms/assets.sh filled: kernel, modules/ and
// guest.
func LoadImage(assets string) (*Image, error) { return loadImage(assets, guestModules) }

func loadImage(assets string, modules []string) (*Image, error) {
	kernel := filepath.Join(assets, "kernel")
	if _, err := os.Stat(kernel); err != nil {
		return nil, fmt.Errorf("load guest image: %w; run vms/assets.sh", err)
	}
	guest, err := os.ReadFile(filepath.Join(assets, "guest"))
	if err != nil {
		return nil, fmt.Errorf("load guest image: %w; run vms/assets.sh", err)
	}
	files, err := moduleFiles(filepath.Join(assets, "modules"))
	if err != nil {
		return nil, err
	}
	order, err := loadOrder(files, modules)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	a := archive{w: &b}
	a.directory("dev")
	// The kernel opens the console for PID 1 before that can mount anything.
	a.charDevice("dev/console", 5, 1)
	a.directory(strings.TrimPrefix(evidence.ModuleDir, "/"))
	for i, path := range order {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("load guest image: %w", err)
		}
		a.file(fmt.Sprintf("%s/%02d-%s", strings.TrimPrefix(evidence.ModuleDir, "/"), i, filepath.Base(path)), 0o600, content)
	}
	a.file("init", 0o755, guest)
	if err := a.close(); err != nil {
		return nil, err
	}
	return &Image{Kernel: kernel, initramfs: b.Bytes()}, nil
}

// WriteInitramfs writes the initramfs for one guest, with the executable of its programs, if there
// is any, and their configuration. The file holds the guest's API token, so only its owner may
// read it.
func (i *Image) WriteInitramfs(path string, config evidence.Config, executable string, programs []Program) error {
	text, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("write initramfs of %s: %w", config.Name, err)
	}
	var own bytes.Buffer
	a := archive{w: &own}
	a.file(strings.TrimPrefix(evidence.ConfigPath, "/"), 0o600, text)
	if len(programs) > 0 && executable != "" {
		content, err := os.ReadFile(executable)
		if err != nil {
			return fmt.Errorf("write initramfs of %s: %w; run vms/assets.sh", config.Name, err)
		}
		a.file(strings.TrimPrefix(evidence.ProgramPath, "/"), 0o755, content)
	}
	if len(programs) > 0 {
		a.directory(strings.TrimPrefix(filepath.Dir(programs[0].ConfigPath()), "/"))
	}
	for _, p := range programs {
		a.file(strings.TrimPrefix(p.ConfigPath(), "/"), 0o600, p.Config)
	}
	if err := a.close(); err != nil {
		return err
	}
	// The kernel unpacks archives that follow each other. Uncompressed, since unpacking is slow
	// under emulation.
	if err := os.WriteFile(path, append(i.initramfs[:len(i.initramfs):len(i.initramfs)], own.Bytes()...), 0o600); err != nil {
		return fmt.Errorf("write initramfs of %s: %w", config.Name, err)
	}
	return nil
}
