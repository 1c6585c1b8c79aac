// Package drill proves on a store, with real processes and real pauses, that
// stale owners are refused.
//
// [Run] plays scenes side by side, each on a key and a guarded file of its own.
// The workers of a scene are processes, which run [Serve]. They use the client,
// the store and the guard as any program does. The director, in the calling
// process, gives them orders. It stops them with SIGSTOP, kills them with
// SIGKILL, and cuts them off from the store. It also looks at the store and the
// files itself. The judges (judge.go) are pure functions. They see only the
// outcome of a step and say whether the laws allow it.
//
// [RunStaged] plays one story in stages instead. After each stage it checks the
// metrics, which a [Meter] of the caller counts.
//
// Workers do not look at their leases before they act. They behave like a
// worker that has no idea that it was replaced.
//
// # Goroutines and locks
//
// In the director each scene has its own goroutine and its own stage, which no
// other goroutine uses. They share only the list of all workers (director.mu)
// and Options.Progress. Each worker process has one goroutine that reads its
// replies. worker.mu protects the number of the last order, the calls that wait
// for a reply, and the renewals that replies told of.
//
// In a worker process one goroutine reads orders, and another carries them out,
// one after the other. The second owns all state of the worker, except the
// times at which leases were renewed or ended. A begun write runs in a
// goroutine of its own, because it waits for the order to finish. In the tap,
// calls makes sure that no call to the store is under way when the store is cut
// off. Its mu protects the memory of requests and tokens.
package drill
