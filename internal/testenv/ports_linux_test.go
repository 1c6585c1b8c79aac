package testenv

import (
	"net"
	"strconv"
	"testing"
)

// TestAPortBelongsToOneTestBinary: neither another test binary nor a connection that somebody opens gets it while its server is down.
func TestAPortBelongsToOneTestBinary(t *testing.T) {
	first := firstGivenAway()
	seen := map[int]bool{}
	for range 50 {
		port := FreePort(t)
		if seen[port] {
			t.Errorf("%d was given twice", port)
		}
		seen[port] = true
		if port >= first {
			t.Errorf("%d is one that the system gives away from %d on", port, first)
		}
		if l, err := net.Listen("unix", "@croft-test-port-"+strconv.Itoa(port)); err == nil {
			l.Close()
			t.Errorf("%d can be marked by another", port)
		}
	}
}
