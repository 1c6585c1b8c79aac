//go:build unix

package overhttp

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// writeWhile writes b to a connection, and asks allowed before every system
// call. An ordinary large write to a slow service goes on by itself when there
// is room again, even if its process was stopped in between.
func writeWhile(conn net.Conn, b []byte, allowed func() error) (n int, err error) {
	system, ok := conn.(syscall.Conn)
	if !ok {
		if err := allowed(); err != nil {
			return 0, err
		}
		return conn.Write(b)
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Write(func(fd uintptr) (done bool) {
		for n < len(b) {
			if failed = allowed(); failed != nil {
				return true
			}
			sent, err := syscall.Write(int(fd), b[n:])
			switch {
			case err == nil:
				n += sent
			case errors.Is(err, syscall.EAGAIN):
				return false
			case !errors.Is(err, syscall.EINTR):
				failed = os.NewSyscallError("write", err)
				return true
			}
		}
		return true
	})
	return n, errors.Join(failed, err)
}
