package kept

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// replace has what is written to one file go to another.
func replace(file, by *os.File) error { return unix.Dup3(int(by.Fd()), int(file.Fd()), 0) }

// peer is the process at the other end of a connection.
func peer(conn net.Conn) (*os.Process, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		credentials, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failure); err != nil {
		return nil, err
	}
	return os.FindProcess(int(credentials.Pid))
}
