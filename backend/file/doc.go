// Package file guards files on local file systems: whose write still replaces
// the content.
//
//	report, err := file.Open("out/today.json", nil)
//	…
//	_, err = report.Write(ctx, lease.Stamp(), content)
//
// [File] says how the check and the write become one step.
//
// # Goroutines and locks
//
// A call that changes the mark takes two locks, in this order:
//
//   - File.mutex: one call of this process at a time waits for the file's
//     flock(2), or has it.
//   - The flock(2) of the sidecar, which keeps other processes out.
//
// Both waits end with the caller's context, or after LockWait. Content is
// staged before, without a lock. Write reads the new content in a goroutine of
// its own, and leaves it behind if the reader hangs. File.sweeping lets one
// call at a time remove old staged files.
package file
