package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/lab/device"
)

// The addresses of the network that a poor link needs. Both are the same machine: what goes to far
// comes back from there to near, through this process, with the two exchanged. So every packet of a
// client passes the link, and every one of an answer.
var near, far = netip.AddrFrom4([4]byte{10, 99, 0, 1}), netip.AddrFrom4([4]byte{10, 99, 0, 2})

// inNetwork is a command that runs this program in a network of its own, and is gone with us. That
// needs no root; a poor link in there needs /dev/net/tun, which on some machines only root may
// open.
func inNetwork(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	device.OwnNetwork(cmd.SysProcAttr)
	return cmd, nil
}

// networkMissing says why this machine can't have a network of ours with a device in it; nil if it
// can.
func networkMissing(ctx context.Context) error {
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	cmd, err := inNetwork(ctx, "-"+conditionFlag, "nothing")
	if err = errors.Join(err, tun.Close()); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces of users and networks: %w", err)
	}
	_ = cmd.Wait() // there is no such condition: it has begun
	return nil
}

// open makes the link in the network that this process has of its own.
func (l *link) open() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun for a poor network: %w", err)
	}
	const name = "poor0"
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = os.NewSyscallError("ioctl TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	}
	if err == nil {
		err = errors.Join(device.Up(device.Loopback), device.SetAddress(name, netip.PrefixFrom(near, 24)), device.Up(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a poor network: %w", err), unix.Close(fd))
	}
	go l.carry(os.NewFile(uintptr(fd), name))
	return nil
}

// carry carries packets until the process ends.
func (l *link) carry(tun *os.File) {
	draw := rand.New(rand.NewPCG(1, 1))
	for buffer := make([]byte, 1<<16); ; {
		n, err := tun.Read(buffer)
		if err != nil {
			fmt.Fprintln(os.Stderr, "clients: read packets of the poor network:", err)
			return
		}
		packet := append([]byte(nil), buffer[:n]...)
		const source, destination, end = 12, 16, 20 // in the header of IPv4
		if n < end || packet[0]>>4 != 4 || netip.AddrFrom4([4]byte(packet[destination:end])) != far {
			continue
		}
		// Checksums are sums of both addresses, whichever way round.
		copy(packet[source:], far.AsSlice())
		copy(packet[destination:], near.AsSlice())
		for range l.copies(draw) {
			time.AfterFunc(l.delay+time.Duration(draw.Int64N(int64(l.spread)+1)), func() {
				_, _ = tun.Write(packet) // it is lost, as packets can be
			})
		}
	}
}
