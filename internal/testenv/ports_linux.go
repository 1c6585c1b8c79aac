package testenv

import (
	"net"
	"strconv"
	"sync"
)

// reservable says that ports can be marked as taken.
const reservable = true

// reserved keeps the marks of this process: one that nothing refers to any more would be closed.
var reserved struct {
	sync.Mutex
	marks []net.Listener
}

// reserve marks a port as this process's until it ends, by a name that belongs to the network, as the port does, and leaves no file behind. It says false when another has the mark.
func reserve(port int) bool {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@croft-test-port-" + strconv.Itoa(port), Net: "unix"})
	if err != nil {
		return false
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.marks = append(reserved.marks, l)
	return true
}
