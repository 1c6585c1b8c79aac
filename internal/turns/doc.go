// Package turns decides which waiters a store wakes when a key becomes free. It
// is for stores whose server sends messages about changes.
//
// # Queues
//
// Callers in several processes, each with a store of its own, may wait for one
// key. The server keeps these stores in a queue, one per key. It puts a
// store into the queue when it refuses the store's acquire. A store that does
// not ask enters by itself.
//
// When the key is freed, the server names the first store in the queue. That
// store wakes its waiters at once. The other stores wait a moment ([Grace]),
// because the named one may be stopped or dead, and then wake their waiters. If
// they hear meanwhile that the key was taken, they wake nobody.
//
// All of this is a hint. The key is reserved for nobody: the first to ask gets
// it. A waiter that misses a hint finds out by asking again.
//
// # Parts
//
//   - A [Queue] is one store's view of the queue of one key. It is a state
//     machine without I/O: time is an argument.
//   - A [Hub] has the Queues of all keys that callers of one store wait for,
//     and a timer for each.
//   - A [Driver] connects a hub with a server. It subscribes to keys, passes on
//     the server's messages, and takes the store out of queues.
//   - [Acts] tells listeners on which keys operators have acted.
//
// # Locks and goroutines
//
// Hub.mu protects the keys and their Queues. It is held only for a moment,
// never during a call of the driver. Hub.order is held while the driver
// subscribes or unsubscribes, so that these calls come one at a time. A
// goroutine that needs both takes order first.
//
// Joining, entering a queue and stepping out of it run on goroutines of their
// own, because a server may hang. Hub.work counts them, and [Hub.End] waits for
// them. A key is subscribed to from its first waiter until Kept after its last
// one.
package turns
