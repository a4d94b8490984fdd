package container

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces returns the namespaces of a program of an image: of mounts and processes, and of
// users, unless root starts it.
func namespaces(rootless bool) (*syscall.SysProcAttr, error) {
	own := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if rootless {
		own.Cloneflags |= unix.CLONE_NEWUSER
		own.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		own.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return own, nil
}

// devices lists the devices of every container.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// enter makes the files of the image the root directory. All mounts are of this namespace of
// mounts, and gone with it.
func (p *prepared) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	// What it writes is in memory, so that nothing of that has to be removed.
	if err := unix.Mount("tmpfs", p.Own, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount memory for what it writes: %w", err)
	}
	root, upper, work := filepath.Join(p.Own, "root"), filepath.Join(p.Own, "upper"), filepath.Join(p.Own, "work")
	for _, dir := range []string{root, upper, work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", p.Root, upper, work)
	if p.Rootless {
		layers += ",userxattr"
	}
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		return fmt.Errorf("mount its files: %w", err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer inside.Close()
	f := files{inside, root}
	err = f.mount("proc", "/proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC)
	if err == nil {
		err = f.mount("tmpfs", "/dev", unix.MS_NOSUID|unix.MS_NOEXEC)
	}
	for _, device := range devices {
		if err == nil {
			err = f.bind("/dev/"+device, false)
		}
	}
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if _, missing := os.Stat(file); err == nil && missing == nil {
			err = f.bind(file, false)
		}
	}
	for _, dir := range p.Shared {
		if err == nil {
			err = f.bind(dir, false)
		}
	}
	for _, dir := range p.ReadOnly {
		if err == nil {
			err = f.bind(dir, true)
		}
	}
	if err != nil {
		return err
	}
	given := make(map[string][]byte)
	for at, file := range p.Files {
		if given[at], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("enter its files: %w", err)
	}
	for at, data := range given { // from here on no link leads to the host's
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			return err
		}
	}
	return os.Chdir(cmp.Or(p.Dir, "/"))
}

// files opens the image's files. No symbolic link in the image leads out of it to the host's files.
type files struct {
	*os.Root
	at string
}

func (f files) mount(kind, path string, flags uintptr) error {
	if err := f.MkdirAll(path[1:], 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, f.at+path, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, path, err)
	}
	return nil
}

// bind has a file or a directory of the host at the same path.
func (f files) bind(path string, readOnly bool) error {
	err := f.place(path)
	if err == nil {
		err = unix.Mount(path, f.at+path, "", unix.MS_BIND|unix.MS_REC, "")
	}
	var of unix.Statfs_t
	if err == nil && readOnly {
		err = unix.Statfs(path, &of)
	}
	if err == nil && readOnly {
		// What the host has locked has to stay so in a namespace of users.
		locked := uintptr(of.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		err = unix.Mount("", f.at+path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|locked, "")
	}
	if err != nil {
		return fmt.Errorf("have %s of the host: %w", path, err)
	}
	return nil
}

// place makes something to mount a file or a directory of the host over.
func (f files) place(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	name := filepath.Clean(path)[1:]
	if info.IsDir() {
		return f.MkdirAll(name, 0o755)
	}
	if err := f.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if there, err := f.Lstat(name); err == nil && there.Mode()&os.ModeSymlink != 0 {
		if err := f.Remove(name); err != nil { // it may lead to a file that only another system has
			return err
		}
	}
	file, err := f.OpenFile(name, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// execute becomes the program, the first process of its namespace.
func (p *prepared) execute() error {
	file, err := exec.LookPath(p.Command[0])
	if err != nil {
		return err
	}
	return unix.Exec(file, p.Command, os.Environ())
}
