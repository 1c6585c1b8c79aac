package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// FreePort returns a port of the loopback interface, for this test binary alone
// until it ends. So a server that is killed finds its port again.
//
// Test binaries run side by side, and the system gives any free port to the
// next connection. So FreePort chooses below the ports that the system gives
// away, and marks the port as taken for other test binaries.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return port
}

func freePort() (int, error) {
	const lowest, tries = 10_000, 1000
	highest := firstGivenAway()
	if !reservable || highest-lowest < tries {
		return anyPort(0)
	}
	err := errors.New("other tests have them all")
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		if !reserve(port) {
			continue
		}
		if _, err = anyPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d in %d tries: %w", lowest, highest, tries, err)
}

// anyPort listens on a port for a moment, to see whether it is free. 0 lets the
// system choose one.
func anyPort(port int) (int, error) {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// firstGivenAway returns the lowest port that the system gives away by itself.
func firstGivenAway() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	first, _ := strconv.Atoi(strings.Fields(string(text) + " 0")[0])
	return first
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
