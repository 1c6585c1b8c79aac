// Package drill proves on a store, with real processes and real pauses, that stale owners are refused.
//
// [Run] plays scenes side by side, each on a key and a guarded file of its own. The workers of a scene are processes ([Serve] is their
// side), which use the client, the store and the guard as any program does; the director, in this process, tells them what to do, stops them with
// SIGSTOP, kills them with SIGKILL, cuts them off from the store, and looks at the store and the files itself. What happened is judged
// by pure functions (judge.go) that know nothing of how it came about.
//
// [RunStaged] plays one story instead, stage by stage, and looks after each at the metrics, which are counted by a [Meter] that is handed in.
//
// Workers do not look at their leases before they act: they behave as one that has no idea it was replaced.
package drill
