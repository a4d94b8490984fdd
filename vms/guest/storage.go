package main

import (
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// reachStorage passes mounts on to the storage, by its port, and starts the node's CSI driver. PID
// 1 does the first, as the kernel mounts no port and a mount outlives whoever made it.
func (n *realNode) reachStorage() error {
	port, err := openPort(evidence.StorageName)
	if err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: nodeRoot + evidence.StorageSocket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("reach the storage: %w", err)
	}
	w := &way{port: port}
	go func() { n.complain(w.answers()) }()
	go func() { n.complain(w.requests(listener)) }()
	if err := n.command("csi-node", n.config.Kubelet.Storage, n.config.Kubelet.Node).Start(); err != nil {
		return fmt.Errorf("start the CSI driver: %w", err)
	}
	return nil
}

func (n *realNode) complain(err error) {
	n.out.say(evidence.Trouble, fmt.Sprintf("reach the storage: %v", err))
}

// way is the way of mounts to the storage, which one takes at a time.
type way struct {
	port *os.File

	mu    sync.Mutex
	mount *net.UnixConn // nil without one
}

// messages are as long at most as the kernel's are, so that each is one buffer of the port.
const messages = 32 << 10

// requests passes on what mounts ask, one mount after the other.
func (w *way) requests(listener *net.UnixListener) error {
	buffer := make([]byte, messages)
	for {
		mount, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		w.use(mount)
		for {
			count, err := mount.Read(buffer)
			if err != nil {
				break // unmounted
			}
			if _, err := w.port.Write(buffer[:count]); err != nil {
				return err
			}
		}
		w.use(nil)
		mount.Close()
	}
}

func (w *way) use(mount *net.UnixConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mount = mount
}

// answers passes on what the storage answers. What is for a mount that is gone goes nowhere.
func (w *way) answers() error {
	buffer := make([]byte, messages)
	for {
		count, err := w.port.Read(buffer)
		if err != nil {
			return err
		}
		w.mu.Lock()
		if w.mount != nil {
			_, _ = w.mount.Write(buffer[:count]) // it may just be going
		}
		w.mu.Unlock()
	}
}
