// Package turns has what a store needs that tells its clients of changes: who
// waits here for which key, whose turn it is, and who is woken.
//
// Several stores, in several processes, may wait for one key. A server that
// keeps them in a line puts a store into the line when its acquire is refused.
// Whatever frees the key names the first in the line. That store wakes its
// waiters at once. The others wait a moment, because the named one may be
// stopped or dead, and then wake theirs. If they hear that the key was taken,
// they wake nobody.
//
// All of it is a hint. The key is reserved for nobody, and whoever asks first
// has it. What a hint does not tell, a waiter finds out by asking again.
//
//   - A [Line] is one store's part in the line of one key. It is a machine
//     without I/O: time is an argument.
//   - A [Hub] has the lines of all keys that somebody waits for, and a timer for
//     each that needs one.
//   - A [Driver] is what a backend brings: it subscribes to keys, passes on what
//     the server says, and takes the store out of lines.
//   - [Acts] tells listeners on which keys operators have acted.
package turns
