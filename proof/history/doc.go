// Package history records what the clients of real stores and guards saw, and
// checks the records against the laws.
//
// Every process writes a file of its own. Each operation gives two lines of
// JSON: one when it begins and one when it ends. Both are written at once. So
// if a process is killed, the operations it had begun are known, and only their
// outcomes are not.
//
// Times come from the boot clock, which all processes of a machine share. So it
// is certain whether one operation ended before another began.
//
// A [Recorder] has one mutex. It orders the lines of its file, so that
// goroutines of the process may share it. The rest of the package has no
// goroutines and no locks.
//
// [Check] checks the histories of all processes together. If the outcome of an
// operation is unknown, Check allows both: it happened, or it did not.
// [Timeline] shows violations on one HTML page that needs no other file.
package history
