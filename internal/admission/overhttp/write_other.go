//go:build !unix

package overhttp

import "net"

// writeWhile writes b to a connection if allowed says so. It asks once: a write
// that has begun goes on.
func writeWhile(conn net.Conn, b []byte, allowed func() error) (int, error) {
	if err := allowed(); err != nil {
		return 0, err
	}
	return conn.Write(b)
}
