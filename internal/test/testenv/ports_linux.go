package testenv

import (
	"net"
	"strconv"
	"sync"
)

// reservable says that reserve works on this system.
const reservable = true

// reserved keeps the sockets of this process from being closed by the garbage
// collector.
var reserved struct {
	sync.Mutex
	sockets []net.Listener
}

// reserve takes a port for this process until it ends. It returns false if
// another process has taken it. It opens an abstract socket, which belongs to
// the network namespace, as the port does, and leaves no file behind.
func reserve(port int) bool {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@croft-test-port-" + strconv.Itoa(port), Net: "unix"})
	if err != nil {
		return false
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.sockets = append(reserved.sockets, l)
	return true
}
