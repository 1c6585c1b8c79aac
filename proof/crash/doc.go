// Package crash cuts the power, at every moment and in every way that a disk allows.
//
// A [Recorder] stands between the real code and the real file system and writes down every change: bytes written, names made and removed, what was synced, and, between them, what clients asked for
// and were told. A [Disk] plays that sequence back. After any number of its steps it gives the folders that a power cut may leave: what was synced is there; of everything else any part may be, in any
// order. Each such folder is made for real, opened by the real code, and held against what clients had been told.
//
// # What a disk may do
//
//   - Written bytes are safe after a sync of their file. Before it, every sector of 512 bytes may have reached the disk or not, the later before the earlier; the file's length may have reached it without the bytes, which are then zero.
//   - A name (made, linked, renamed, removed) is safe after a sync of its folder, and not by a sync of the file that it names. Before it, every change of a name may have reached the disk or not, in any order.
//   - A rename is one step: both names have changed or neither has, and a sync of either folder makes it safe. So are several changes of one name in their order: a later one that is safe makes the earlier ones safe.
//   - What was synced stays. A disk that lies about that, or damages what it was not asked to write, is beyond this package; so are permissions.
//
// This allows more than journaling file systems do, which is the point: nothing rests on what one of them happens to do today.
package crash
