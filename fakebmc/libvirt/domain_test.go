//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/ci/libvirtd"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/vms/keeper"
)

func TestMain(m *testing.M) {
	keeper.Main()
	os.Exit(m.Run())
}

// open opens the daemon's domains as the command does.
func open(t *testing.T, d *libvirtd.Daemon, o Options) *Domains {
	t.Helper()
	o.URI, o.Images = d.URI, d.Images
	l, _, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *Domains) named(name string) *Domain {
	for _, d := range l.all() {
		if d.name == name {
			return d
		}
	}
	return nil
}

func wantState(t *testing.T, d *libvirtd.Daemon, host *Domain, want fakebmc.PowerState) {
	t.Helper()
	d.Until(host.name+" is "+string(want), func() bool {
		got, err := host.PowerState()
		if err != nil {
			t.Fatal(err)
		}
		return got == want
	})
}

// TestDomainIsASystem holds domains of a real libvirtd against the contract.
func TestDomainIsASystem(t *testing.T) {
	if os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it takes two minutes: it runs with make e2e")
	}
	d := libvirtd.Start(t)
	l := open(t, d, Options{})
	image := "file://" + d.Write("boot.iso", libvirtd.CD("cd"))
	number := 0
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		number++
		name := fmt.Sprintf("system-%d", number)
		m := d.Define(name)
		d.Until(name+" is known", func() bool { return l.named(name) != nil })
		if on {
			if err := m.Domain().Create(); err != nil {
				t.Fatal(err)
			}
			m.WantSaid("disk") // and hears the power button
		}
		t.Cleanup(m.ForceOff)
		return systemtest.Fixture{
			System: l.named(name), Boots: m.Boots, Image: image,
			Advance: func(d time.Duration) { <-time.After(d) },
			Step:    20 * time.Millisecond, Limit: 10 * time.Second, Hold: 500 * time.Millisecond, Real: true,
		}
	})
}

// TestBoot boots a domain from here and there; where from, it says itself.
func TestBoot(t *testing.T) {
	d := libvirtd.Start(t)
	m := d.Define("host")
	before := m.Definition()
	served := httptest.NewServer(http.FileServerFS(os.DirFS(filepath.Dir(d.Write("served/boot.iso", libvirtd.CD("cd"))))))
	defer served.Close()
	l := open(t, d, Options{})
	host := l.named("host")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	override := func(enabled, target string) {
		t.Helper()
		do(host.SetBoot(fakebmc.Boot{Enabled: enabled, Target: target}))
	}
	targets, modes, err := host.Bootable()
	if want := []string{"None", "Pxe", "Cd", "Hdd"}; err != nil || !slices.Equal(targets, want) || !slices.Equal(modes, []string{"Legacy"}) {
		t.Errorf("bootable are %v in %v, %v; want %v", targets, modes, err, want)
	}
	// libvirt itself has looked how large the disk is, and has given the interface its address.
	made, err := host.Inventory()
	if err != nil || len(made.Drives) != 1 || made.Drives[0].Bytes == 0 || len(made.NICs) != 1 || made.NICs[0].MAC == "" || made.MiB() == 0 || len(made.Processors) != 1 {
		t.Errorf("the inventory is %+v, %v", made, err)
	}

	do(host.Reset(fakebmc.ResetOn))
	m.WantSaid("disk")
	// Inserted while it runs, an image is there with the next instance; a CD comes after the disk.
	do(host.InsertMedia(served.URL + "/boot.iso"))
	do(host.Reset(fakebmc.ResetForceRestart))
	m.WantSaid("disk", "disk")
	override(fakebmc.BootOnce, fakebmc.BootCd)
	do(host.Reset(fakebmc.ResetForceRestart))
	m.WantSaid("disk", "disk", "cd")
	if b, err := host.Boot(); err != nil || b != (fakebmc.Boot{Enabled: "Disabled", Target: "None", Mode: "Legacy"}) {
		t.Errorf("after its one boot the override is %+v, %v", b, err)
	}
	do(host.Reset(fakebmc.ResetForceRestart))
	m.WantSaid("disk", "disk", "cd", "disk")
	override(fakebmc.BootContinuous, fakebmc.BootCd)
	do(host.Reset(fakebmc.ResetForceOff))
	do(host.Reset(fakebmc.ResetOn))
	m.WantSaid("disk", "disk", "cd", "disk", "cd")
	do(host.Reset(fakebmc.ResetForceRestart)) // of the same instance
	m.WantSaid("disk", "disk", "cd", "disk", "cd", "cd")
	// Without its CD it goes on to the disk, also within the same instance.
	do(host.EjectMedia())
	if left, err := os.ReadDir(d.Images); err != nil || len(left) > 0 {
		t.Errorf("after the ejection there are %v, %v", left, err)
	}
	do(m.Domain().Reset(0))
	m.WantSaid("disk", "disk", "cd", "disk", "cd", "cd", "disk")
	override(fakebmc.BootDisabled, fakebmc.BootNone)
	do(host.Reset(fakebmc.ResetPowerCycle))
	m.WantSaid("disk", "disk", "cd", "disk", "cd", "cd", "disk", "disk")

	override(fakebmc.BootOnce, fakebmc.BootPxe)
	do(host.Reset(fakebmc.ResetPowerCycle))
	m.WantSaid("disk", "disk", "cd", "disk", "cd", "cd", "disk", "disk", "disk") // the network has nothing
	live, err := m.Domain().GetXMLDesc(0)
	if err != nil {
		t.Fatal(err)
	}
	def, err := parse(live)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, e := range def.order() {
		order = append(order, e.Tag)
	}
	if want := []string{"interface", "disk"}; !slices.Equal(order, want) {
		t.Errorf("the devices to boot from are %v, want %v", order, want)
	}
	if after := m.Definition(); after != before {
		t.Errorf("the domain's definition was changed to\n%s\nfrom\n%s", after, before)
	}
}

// TestInsertMediaRefuses what can't be fetched, and leaves nothing of it.
func TestInsertMediaRefuses(t *testing.T) {
	d := libvirtd.Start(t)
	d.Define("host")
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a redirection was followed")
	}))
	defer outside.Close()
	mux := http.NewServeMux()
	mux.Handle("/away.iso", http.RedirectHandler(outside.URL+"/secret", http.StatusFound))
	mux.HandleFunc("/short.iso", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("x")) // the connection ends with the handler
	})
	mux.HandleFunc("/large.iso", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(int64(maxImage)+1))
	})
	served := httptest.NewServer(mux)
	defer served.Close()
	host := open(t, d, Options{}).named("host")
	for _, c := range []struct{ url, want string }{
		{served.URL + "/away.iso", "sends on"},
		{served.URL + "/short.iso", "EOF"},
		{served.URL + "/large.iso", "limit"},
		{served.URL + "/none.iso", "404"},
		{"http://127.0.0.1:1/boot.iso", "refused"},
		{"file://" + d.Images, "regular"},
		{"file://" + d.Images + "/none.iso", "no such file"},
		{"nfs://127.0.0.1/boot.iso", "by file, http or https"},
	} {
		if err := host.InsertMedia(c.url); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.url, err, c.want)
		}
		if image, err := host.Media(); err != nil || image != "" {
			t.Errorf("after %s the image is %q, %v", c.url, image, err)
		}
	}
	if left, err := os.ReadDir(d.Images); err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// TestSavedMemoryIsNotABoot: the old guest, which may have been fenced long ago,
// would go on running.
func TestSavedMemoryIsNotABoot(t *testing.T) {
	d := libvirtd.Start(t)
	m := d.Define("host")
	if err := m.Domain().Create(); err != nil {
		t.Fatal(err)
	}
	m.WantSaid("disk")
	if err := m.Domain().ManagedSave(0); err != nil {
		t.Fatal(err)
	}
	host := open(t, d, Options{}).named("host")
	wantState(t, d, host, fakebmc.Off)
	if err := host.Reset(fakebmc.ResetOn); !errors.Is(err, fakebmc.ErrConflict) || !strings.Contains(err.Error(), "managedsave-remove host") {
		t.Errorf("On: %v", err)
	}
	wantState(t, d, host, fakebmc.Off)
	if err := m.Domain().ManagedSaveRemove(0); err != nil {
		t.Fatal(err)
	}
	if err := host.Reset(fakebmc.ResetOn); err != nil {
		t.Error(err)
	}
	m.WantSaid("disk", "disk")
}

// TestLibvirtComesBack: the daemon is restarted, which domains survive, and domains
// come and go, before and after.
func TestLibvirtComesBack(t *testing.T) {
	d := libvirtd.Start(t)
	m := d.Define("host")
	var (
		mu      sync.Mutex
		changes []string
	)
	l := open(t, d, Options{Change: func(d *Domain, gone bool) {
		mu.Lock()
		defer mu.Unlock()
		what := "+"
		if gone {
			what = "-"
		}
		changes = append(changes, what+d.Name())
	}})
	changed := func(want ...string) {
		t.Helper()
		d.Until(fmt.Sprint(want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(changes, want)
		})
	}
	host := l.named("host")
	if err := host.Reset(fakebmc.ResetOn); err != nil {
		t.Fatal(err)
	}
	m.WantSaid("disk")
	other := d.Define("other")
	changed("+other")
	if err := other.Domain().Undefine(); err != nil {
		t.Fatal(err)
	}
	changed("+other", "-other")

	told := make(chan fakebmc.PowerState, 10)
	defer host.Watch(func(p fakebmc.PowerState) { told <- p })()
	d.Stop()
	if p, err := host.PowerState(); err == nil {
		t.Errorf("without libvirt the host is %s", p)
	}
	if err := host.Reset(fakebmc.ResetForceOff); err == nil {
		t.Error("without libvirt it was forced off")
	}
	d.Restart()
	wantState(t, d, host, fakebmc.On)
	third := d.Define("third")
	changed("+other", "-other", "+third")
	m.ForceOff()
	d.Until("the watcher is told that the host is off", func() bool {
		select {
		case p := <-told:
			if p != fakebmc.Off && p != fakebmc.PoweringOff {
				t.Errorf("the watcher was told %s", p)
			}
			return p == fakebmc.Off
		default:
			return false
		}
	})
	if err := third.Domain().Undefine(); err != nil {
		t.Fatal(err)
	}
	changed("+other", "-other", "+third", "-third")
	if p, err := l.named("host").PowerState(); err != nil || p != fakebmc.Off {
		t.Errorf("the host is %s, %v", p, err)
	}
}

// TestLibvirtHangs: each request has an error in time, ForceOff first of all, with a
// bounded number of threads; what was refused so is not done later, and neither the end
// nor a beginning hangs.
func TestLibvirtHangs(t *testing.T) {
	d := libvirtd.Start(t)
	m := d.Define("host")
	l, _, err := Open(t.Context(), Options{URI: d.URI})
	if err != nil {
		t.Fatal(err)
	}
	host := l.named("host")
	if err := host.Reset(fakebmc.ResetOn); err != nil {
		t.Fatal(err)
	}
	m.WantSaid("disk")
	image := "file://" + d.Write("boot.iso", libvirtd.CD("cd"))
	before := threads(t)
	d.Freeze()
	for range 2 { // while the connection is given up, and while it can't be made anew
		errs := make(chan error)
		go func() { errs <- host.Reset(fakebmc.ResetForceOff) }()
		go func() { errs <- host.InsertMedia(image) }()
		for range 10 * maxCalls {
			go func() { _, err := host.PowerState(); errs <- err }()
		}
		for range 10*maxCalls + 2 {
			if err := <-errs; err == nil {
				t.Error("a libvirtd that hangs has answered")
			}
		}
		d.Until("the calls are given up", func() bool { return len(l.line.slots) == 0 })
	}
	if now := threads(t); now > before+2*maxCalls {
		t.Errorf("%d threads, before there were %d", now, before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Open(ctx, Options{URI: d.URI}); !errors.Is(err, errClosed) {
		t.Errorf("a beginning that was called off: %v", err)
	}
	if _, _, err := Open(t.Context(), Options{URI: d.URI}); !errors.Is(err, errSilent) {
		t.Errorf("a beginning: %v", err)
	}

	d.Thaw()
	d.Until("libvirtd answers again", func() bool { _, err := host.PowerState(); return err == nil })
	wantState(t, d, host, fakebmc.On)
	if image, err := host.Media(); err != nil || image != "" {
		t.Errorf("inserted is %q, %v", image, err)
	}
	if err := host.Reset(fakebmc.ResetForceOff); err != nil {
		t.Error(err)
	}
	wantState(t, d, host, fakebmc.Off)
	d.Freeze()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := host.PowerState(); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// threads counts those of the process.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestOpenRefuses(t *testing.T) {
	d := libvirtd.Start(t)
	d.Define("host")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{URI: d.URI, Names: []string{"host", "nobody"}}, "find domain nobody"},
		{Options{URI: "nonsense:///"}, "connect to libvirt at nonsense:///"},
		{Options{URI: "qemu+unix:///session?socket=/nowhere"}, "connect to libvirt at qemu+unix"},
	} {
		if _, _, err := Open(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.o, err, c.want)
		}
	}
	l := open(t, d, Options{Names: []string{"host"}})
	d.Define("other")
	if all := l.all(); len(all) != 1 || all[0].Name() != "host" {
		t.Errorf("%d domains, want host only", len(all))
	}
}
