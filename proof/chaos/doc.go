// Package chaos runs Croft's real clients on real servers under faults. Every
// client is a process of its own. Faults stop and kill clients, delay, cut or
// swallow their connections, and kill servers or fail them over, several at
// once. Package history records what every process saw, and checks it.
//
// Each client acquires a lease, reads the key's resource, waits a while, writes
// an update of what it has read, and releases the lease. It does not check
// its lease before it writes: the guards have to. Operators take keys from
// clients by hand, with the calls that the command line makes. With guards no
// update may be lost. The same run without guards is the control: it must lose
// some.
//
// # Who runs what
//
//   - [Run] starts the servers and the clients. Its goroutine then fires the
//     faults (storm.rage) and undoes them. It alone touches the list of faults
//     to undo.
//   - Each fault of a server runs on a goroutine of its own (storm.aside),
//     because it takes a while. There is at most one at a time. storm.mu guards
//     what both goroutines use.
//   - Each client process has a goroutine that starts it and waits for it
//     (member.start). member.done is closed when the process is gone.
//   - A goroutine reads the histories once a second. It reports the progress,
//     and ends the faults early if enough was seen (run.fireFaults).
//   - testbed.mu guards the servers' addresses: a failover changes them while
//     clients connect.
//   - The command runs several backends at once. command.mu guards what it
//     prints.
package chaos
