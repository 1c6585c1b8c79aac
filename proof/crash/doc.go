// Package crash tests what survives a power cut, after every step and for every
// state that a disk may be in.
//
// A [Recorder] sits between the real code and the real file system. It records
// every change: written bytes, new and removed names, and syncs. Between the
// changes it records the clients' requests and the answers they got. A [Disk]
// replays the recording. After any step it returns the folders that a power cut
// may leave. Synced changes are in all of them. Any part of the other changes
// may be there, in any order. The search makes each such folder with real
// files, opens it with the real code, and compares it with the answers that
// clients had got.
//
// A Recorder has one mutex. It holds the mutex while it makes a change and
// records it, so the recording has the order in which the changes happened.
// [Recorder.Search] replays on one goroutine, and checks the folders on eight
// others, which take them from a channel. They share only the first error,
// under a mutex.
//
// # What a disk may do
//
//   - Written bytes are safe after a sync of their file. Before it, each sector
//     of 512 bytes may have reached the disk or not, in any order. The file's
//     new length may have reached it without the bytes, which are zero then.
//   - A changed name (made, linked, renamed, removed) is safe after a sync of
//     its folder. A sync of the named file does not help. Before the sync, each
//     change of a name may have reached the disk or not, in any order.
//   - A rename is one step: both names have changed or neither has. A sync of
//     either folder makes it safe.
//   - Changes of one name keep their order: if a later change is safe, so are
//     the earlier ones.
//   - Synced changes stay. The package does not model disks that lie about
//     syncs, disks that damage other data, or permissions.
//
// This allows more than journaling file systems do. So no test relies on what
// one of them happens to do today.
package crash
