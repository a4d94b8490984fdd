//go:build cgo && libvirt_dlopen

// Package libvirtd gives tests a libvirt daemon of their own, with all of its state in a directory
// that goes with the test, and domains whose guest reports where each boot came from. They are
// real: libvirt's QEMU driver, QEMU, its firmware.
package libvirtd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/vms/keeper"
)

// patience bounds every wait; a busy machine emulates slowly.
const patience = 60 * time.Second

// nobody is the user that runs the daemon in place of root. Root's daemon would be the machine's
// own libvirt with its directories.
const nobody = 65534

// Daemon is a libvirtd that runs.
type Daemon struct {
	// URI is the daemon's.
	URI string
	// Images is a directory in which its domains find what they open.
	Images string

	t       testing.TB
	dir     string
	process *exec.Cmd
	conn    *libvirt.Connect // the test's, which sees what the daemon's users do
}

// Start starts a daemon that ends with the test. It skips the test where no virtual machine is
// promised to run (FENCELAB_REQUIRE_LAB). The test's main has to call keeper.Main.
func Start(t testing.TB) *Daemon {
	t.Helper()
	if os.Getenv("FENCELAB_REQUIRE_LAB") != "1" {
		t.Skip("it starts virtual machines: it runs with make e2e")
	}
	for _, command := range []string{"libvirtd", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Fatalf("%v; vms/assets.sh installs it", err)
		}
	}
	k, err := keeper.Start()
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t}
	// Short, since the paths of unix sockets below it are limited to 108 bytes.
	if d.dir, err = k.TempDir("fencelab-d"); err != nil {
		t.Fatal(err)
	}
	// The marks that libvirt itself gives to its QEMU processes.
	for _, mark := range []string{"XDG_CACHE_HOME=" + d.dir + "/", "unix:" + d.dir + "/"} {
		if err := k.KillMarked(mark); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	d.Write("config/libvirt/qemu.conf", []byte("stdio_handler = \"file\"\n"))
	d.Write("config/libvirt/libvirtd.conf", []byte("auth_unix_rw = \"none\"\nlog_outputs = \"3:stderr\"\n"))
	for _, dir := range []string{"run", "cache", "images"} {
		if err := os.Mkdir(filepath.Join(d.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.Images = filepath.Join(d.dir, "images")
	d.URI = "qemu+unix:///session?socket=" + filepath.Join(d.dir, "run/libvirt/libvirt-sock")
	d.Restart()
	t.Cleanup(d.Stop)
	t.Cleanup(func() {
		if _, err := d.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Write writes a file that domains can open, with a path below the daemon's directory.
func (d *Daemon) Write(name string, data []byte) (path string) {
	d.t.Helper()
	path = filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// Restart starts the daemon again after Stop, and waits until it takes connections.
func (d *Daemon) Restart() {
	d.t.Helper()
	var attr syscall.SysProcAttr
	attr.Pdeathsig = syscall.SIGKILL
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		err := filepath.Walk(d.dir, func(path string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, nobody, nobody)
		})
		if err != nil {
			d.t.Fatal(err)
		}
	}
	var said bytes.Buffer
	d.process = exec.Command("libvirtd")
	d.process.SysProcAttr, d.process.Stderr = &attr, &said
	d.process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "XDG_RUNTIME_DIR=" + d.dir + "/run",
		"XDG_CONFIG_HOME=" + d.dir + "/config", "XDG_CACHE_HOME=" + d.dir + "/cache"}
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	if d.conn != nil {
		_, _ = d.conn.Close() // it was lost with the daemon
	}
	d.Until("libvirtd takes connections", func() (ok bool) {
		var err error
		d.conn, err = libvirt.NewConnect(d.URI)
		return err == nil
	})
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.t.Logf("libvirtd: %s", said.String())
			logs, _ := filepath.Glob(filepath.Join(d.dir, "cache/libvirt/qemu/log/*.log"))
			for _, path := range logs { // each says what ended its machine
				text, err := os.ReadFile(path)
				d.t.Logf("%s: %s %v", path, text, err)
			}
		}
	})
}

// Stop ends the daemon; domains that run go on.
func (d *Daemon) Stop() {
	d.signal(syscall.SIGTERM)
	_ = d.process.Wait() // its error is only the way that it ended
}

// Freeze has the daemon hang until Thaw, or the test's end.
func (d *Daemon) Freeze() {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	d.t.Cleanup(d.Thaw)
	d.Until("libvirtd has stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.process.Process.Pid))
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// Thaw has the daemon go on.
func (d *Daemon) Thaw() {
	d.t.Helper()
	d.signal(syscall.SIGCONT)
}

func (d *Daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.process.Process.Signal(s); err != nil {
		d.t.Error(err)
	}
}

// Until waits for something.
func (d *Daemon) Until(what string, done func() bool) {
	d.t.Helper()
	for end := time.Now().Add(patience); !done(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

var domainXML = template.Must(template.New("domain").Parse(`
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{{.Name}}</name>
  <memory unit='MiB'>32</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{{.Disk}}'/><target dev='vda' bus='virtio'/><shareable/></disk>
    <interface type='user'><mac address='52:54:00:00:00:01'/><model type='virtio'/><rom enabled='no'/></interface>
    <serial type='file'><source path='{{.Serial}}' append='on'/></serial>
    <memballoon model='none'/>
  </devices>
  <qemu:commandline><qemu:arg value='-name'/><qemu:arg value='{{.Name}}'/></qemu:commandline>
</domain>`))

// Machine is a domain that the test defined, as a user would, and its serial port.
type Machine struct {
	d      *Daemon
	name   string
	starts []string // of instances that were seen, with their times
}

// Define defines a domain whose disk boots.
func (d *Daemon) Define(name string) *Machine {
	d.t.Helper()
	image := d.Write("disk.img", disk("disk"))
	serial := d.Write(name+".serial", nil)
	if os.Getuid() == 0 {
		for _, path := range []string{image, serial} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	var text strings.Builder
	if err := domainXML.Execute(&text, map[string]string{"Name": name, "Disk": image, "Serial": serial}); err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.conn.DomainDefineXML(text.String()); err != nil {
		d.t.Fatal(err)
	}
	return &Machine{d: d, name: name}
}

// Domain looks the domain up, which refreshes what libvirt's object says of the instance that runs.
func (m *Machine) Domain() *libvirt.Domain {
	m.d.t.Helper()
	dom, err := m.d.conn.LookupDomainByName(m.name)
	if err != nil {
		m.d.t.Fatal(err)
	}
	return dom
}

// Definition is the XML from which an instance is started by default.
func (m *Machine) Definition() string {
	m.d.t.Helper()
	text, err := m.Domain().GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		m.d.t.Fatal(err)
	}
	return text
}

// ForceOff ends the instance that runs, if any. A daemon that has just been started
// may still be connecting to its QEMU: when that dies of this very call, the daemon
// gives the domain up by itself first, and the call fails because it isn't running.
func (m *Machine) ForceOff() {
	m.d.t.Helper()
	active, err := m.Domain().IsActive()
	if err == nil && active {
		if destroyErr := m.Domain().Destroy(); destroyErr != nil {
			if active, err = m.Domain().IsActive(); err == nil && active {
				err = destroyErr
			}
		}
	}
	if err != nil {
		m.d.t.Error(err)
	}
}

// Serial is the file with what the guest says.
func (m *Machine) Serial() string { return filepath.Join(m.d.dir, m.name+".serial") }

// Said is where each boot so far came from.
func (m *Machine) Said() []string {
	data, err := os.ReadFile(m.Serial())
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.HasSuffix(line, "\n") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// WantSaid waits for as many boots as there are given, and compares where they came from.
func (m *Machine) WantSaid(want ...string) {
	m.d.t.Helper()
	m.d.Until(fmt.Sprintf("%d boots of %s", len(want), m.name), func() bool { return len(m.Said()) >= len(want) })
	if got := m.Said(); !slices.Equal(got, want) {
		m.d.t.Fatalf("%s booted from %v, want %v", m.name, got, want)
	}
}

// Boots counts the boots that have begun. libvirt's log names only the instance of the domain that
// was started last, so call Boots once for each instance: an instance may be off before its guest
// reports anything. The guest reports every restart within an instance.
func (m *Machine) Boots() int {
	log, err := os.ReadFile(filepath.Join(m.d.dir, "cache/libvirt/qemu/log", m.name+".log"))
	if err != nil && !os.IsNotExist(err) {
		m.d.t.Error(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, ": starting up libvirt version") && !slices.Contains(m.starts, line) {
			m.starts = append(m.starts, line)
		}
	}
	return max(len(m.starts), len(m.Said()))
}
