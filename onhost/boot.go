package onhost

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// boot is the boot of this kernel. It implements controllers.Boot.
type boot struct{ id, file string }

// openBoot finds out which boot this is.
func openBoot(dir, program string) (*boot, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("find out which boot this is: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for what is kept until the next boot: %w", err)
	}
	return &boot{strings.TrimSpace(string(id)), stateFile(dir, program)}, nil
}

// ID returns the boot ID, as the kubelet writes it in the Node's status.
func (b *boot) ID() string { return b.id }

// Uptime goes on while the host sleeps, and can't be set.
func (b *boot) Uptime() time.Duration { return uptime() }

// Load returns what was saved in this boot. A directory that outlasts it is no danger:
// the first line is the boot's ID.
func (b *boot) Load() ([]byte, error) {
	data, err := os.ReadFile(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	id, state, _ := bytes.Cut(data, []byte("\n"))
	if string(id) != b.id {
		return nil, nil
	}
	return state, nil
}

// Save keeps the state for the rest of the boot.
func (b *boot) Save(state []byte) error { return write(b.file, append([]byte(b.id+"\n"), state...)) }
