// Package supervise runs one command so that nothing of it outlives the
// permission to run.
//
// It knows nothing of leases. Its caller says when the command may run, must
// pause, must go. This package makes sure that "the command" means all of it:
// the process, its process group, and every descendant. That includes
// descendants that called setsid, changed their group, or forked twice to
// become a daemon.
//
// # The warden
//
// On Linux the command is not a child of the caller but of a warden: the
// caller's own binary, executed once more (see [MaybeWarden]). The warden is
// there for one case: the caller is killed with SIGKILL and can do nothing.
//
// Nothing simpler covers this case. A parent-death signal reaches only the
// direct child, and fork does not inherit it. Once the caller is dead, its
// orphans belong to init and look like anybody else's. A PID namespace or a
// cgroup would do, but needs privileges that a cron job does not have.
//
//   - The warden holds one end of a socket; only the caller holds the other
//     end. End of file means that the caller is dead: the warden kills the
//     whole tree, then leaves. There is no gap at the start. If the caller
//     dies before the warden first reads, the warden still reads end of file.
//   - The warden is a child subreaper: an orphan in the tree becomes its child,
//     never init's. So walking parents in /proc finds the whole tree. And when
//     the kernel says that the warden has no children, nothing is left.
//   - The warden leads a process group of its own and is not called croft. So
//     it survives when somebody kills the caller's job, or every croft by name.
//     Its parent-death signal is SIGCONT: if somebody stopped the warden, it
//     wakes up to do its duty.
//   - If the warden itself is killed, the command dies by its parent-death
//     signal, SIGKILL. That signal is tied to the warden's thread, which never
//     ends before the warden does. The runtime checks the parent again after
//     arming it. The caller is a subreaper, too: it inherits the other
//     descendants, kills them and reaps them.
//   - With [Child.AllowFor] the warden also knows how long the command may run.
//     A caller that is stopped or starved cannot kill anything; the warden can.
//
// The price is one more exec of the same binary, a few milliseconds.
//
// # Killing
//
// [Child.Kill] first stops the whole tree, top down. It walks the tree until a
// walk finds nothing new. Only then it kills. Stopping first has two reasons:
//
//   - No survivor sees its neighbour die and acts on it. A shell would go on to
//     the next line. A reader would take the end of a pipe for the end of the
//     data.
//   - A tree that keeps forking does not outrun the walk: a stopped process
//     stays in the process table but cannot fork. A true fork bomb doubles
//     faster than /proc can be read. It ends only when it meets a limit such
//     as ulimit -u; Kill goes on until then.
//
// Signals go through pidfds, checked against the start time seen in the walk.
// So they never hit a process that got a recycled pid.
//
// # Goroutines and locks
//
// In the caller, a [Child] has these goroutines:
//
//   - follow handles the events of the command: it stopped, or it exited.
//   - relay passes the caller's signals on to the command.
//   - On Linux one goroutine waits for the warden to end, and one reads its
//     reports and turns them into events. It ends last, after it has killed
//     the orphans of a killed warden. Without a warden, group.watch polls the
//     command instead.
//
// Child.mu protects the terminal and whether the command is frozen. In the
// ward, which is the caller's view of the warden, sending orders the messages
// to the warden, and walking protects the list of frozen processes. The
// process-wide lock wardens protects the pids of all wardens. A goroutine may
// take sending while it holds Child.mu, and wardens while it holds walking.
//
// In the warden, the main goroutine forks the command and then keeps its thread
// alive. A second goroutine reads orders. A third one (watch) does everything
// else, so the warden needs no locks.
//
// # Terminal
//
// The command has its own process group. If croft is the foreground job of a
// terminal, that group becomes the foreground group. This happens at once if
// croft leads its job and reads from the terminal. Inside a script or a
// pipeline, whose other members need the terminal too, it happens when the
// command first asks for it. So Ctrl-C, Ctrl-\ and window changes reach the
// command once, from the terminal or from croft, never from both.
//
// When the command is stopped from the terminal (Ctrl-Z), croft stops too, as
// one job; fg continues both. At the end the terminal goes back to croft's
// group. It gets its old modes back if the command was killed.
//
// # Limits
//
//   - Work that a descendant asked another service to do is not a descendant
//     (systemd-run, at, a container daemon, ssh).
//   - Caller and warden may be killed with SIGKILL in the same instant. The
//     command itself then dies by its parent-death signal, but its descendants
//     live on. If the warden is killed while the caller is stopped, they live
//     until the caller continues.
//   - A command that changes user (sudo, set-uid programs) clears its
//     parent-death signal, and an unprivileged caller may not signal it.
//     [Child.Kill] then says which processes are left. The warden stays and
//     goes on trying until they end.
//   - A process in uninterruptible sleep dies when the kernel lets it. Kill
//     waits as long as its context.
//   - Signals ignored at start stay ignored, here and in the command, only for
//     SIGHUP and SIGINT (nohup, background jobs), and on Linux for SIGTSTP,
//     SIGTTIN, SIGTTOU and SIGCONT: the Go runtime resets the others.
//   - Other Unix systems have neither subreapers nor parent-death signals, so
//     they have no warden, and Linux has none with [Options.GroupWillDo] in a
//     program that does not call [MaybeWarden]. Then Freeze, Signal and Kill
//     reach only the process group. AllowFor does nothing, and the command
//     survives a SIGKILL of its caller. Windows is not supported.
package supervise
