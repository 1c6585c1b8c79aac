package testenv

import (
	"net"
	"strconv"
	"testing"
)

// While its server is down, the port must go neither to another test binary nor
// to a connection.
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
