// Package supervise runs one command so that nothing of it outlives the permission to run.
//
// It knows nothing of leases. Its caller says when the command may run, must pause, must go; this package
// sees to it that "the command" means all of it: the process, its process group, and every descendant, also
// those that called setsid, changed their group or forked twice to become a daemon.
//
// # The warden
//
// On Linux the command is not a child of the caller but of a warden: the caller's own binary, executed once
// more (see [MaybeWarden]). The warden is there for one case: the caller is killed with SIGKILL and can do
// nothing. Nothing simpler covers it. A parent-death signal reaches the direct child only and is not inherited
// by fork; once the caller is dead its orphans belong to init and cannot be told from anybody else's; a PID
// namespace or a cgroup would do, but needs privileges that a cron job does not have.
//
//   - The warden holds one end of a socket whose other end only the caller holds. End of file means that the
//     caller is dead: the warden kills the whole tree, then leaves. Being level-triggered, this has no window
//     at start: a caller that died before the warden first looked is as dead as one that dies later.
//   - The warden is a child subreaper: an orphan in the tree becomes its child, never init's. So the tree can be
//     found by walking parents in /proc, and "the kernel says I have no children" proves that nothing is left.
//   - The warden leads a process group of its own and is not called croft: killing the caller's job, or every
//     croft by name, leaves it standing. Its parent-death signal is SIGCONT, so that a warden which somebody
//     stopped wakes up to do its duty.
//   - Should the warden itself be killed, the command dies by its parent-death signal (SIGKILL, tied to the
//     warden's thread, which never ends before the warden does; the runtime checks the parent again after arming it), and
//     the caller, a subreaper too, inherits the rest, kills and reaps it.
//   - With [Child.AllowFor] the warden also holds the time until which the command may run. A caller that is
//     stopped, or starved, cannot kill anything; the warden can.
//
// The price is one more exec of the same binary, a few milliseconds.
//
// # Killing
//
// [Child.Kill] first stops the whole tree, top down, walking until a walk finds nothing new, and only then kills it. Stopping first
// means that no survivor sees its neighbour die and acts on it (the shell that goes on to the next line, the
// reader that takes the end of a pipe for the end of the data), and that a tree which keeps forking does not outrun
// the walk: a stopped process keeps its place in the process table but cannot fork. (A true fork bomb, doubling faster
// than /proc can be read, is killed only when it meets a limit such as ulimit -u; Kill goes on until then.)
// Signals go through pidfds checked against the start time seen in the walk, so a recycled pid is never hit.
//
// # Terminal
//
// The command has its own process group. If croft is the foreground job of a terminal, that group becomes the
// foreground group: at once when croft leads its job and reads from the terminal, otherwise (inside a script or
// a pipeline, whose other members need the terminal too) when the command first asks for it. So Ctrl-C, Ctrl-\ and
// window changes reach the command once, from the terminal or from croft, never from both.
// When the command is stopped from the terminal (Ctrl-Z) croft stops too, as one job; fg continues both.
// At the end the terminal goes back to croft's group, with its old modes if the command was killed.
//
// # What it does not do
//
//   - Work that a descendant asked another service to do (systemd-run, at, a container daemon, ssh) is not a descendant.
//   - Caller and warden killed with SIGKILL in the same instant: the command itself dies by its parent-death
//     signal; descendants it had started live on. Likewise while the caller is stopped and the warden killed:
//     they live until the caller continues.
//   - A command that changes user (sudo, set-uid programs) clears its parent-death signal, and an unprivileged
//     caller may not signal it: [Child.Kill] then says which processes are left, and the warden stays with them, trying, until they end.
//   - A process in uninterruptible sleep dies when the kernel lets it; Kill waits as long as its context.
//   - Signals ignored at start stay ignored in the command only for SIGHUP and SIGINT (nohup, background jobs):
//     the Go runtime resets the others.
//   - Other Unix systems have neither subreapers nor parent-death signals. There is no warden there; what is stopped, signalled and
//     killed is the process group, and the command survives a SIGKILL of its caller. Windows is not supported.
package supervise
