// Package chaos runs Croft's real clients, as processes of their own, on real servers, while processes are stopped and killed, connections delayed, cut and swallowed, servers
// killed and failed over, several of these at once. What everybody saw goes through package history.
//
// Each client takes a lease, reads what the key's resource holds, thinks, writes what it made of it, and gives the lease back. It does not look whether it still has the lease
// before it writes: that is what guards are for. Operators take keys from clients by hand, by the same calls as the command line. With guards no update may be lost; the same without them is the control, and must lose some.
package chaos
