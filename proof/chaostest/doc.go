// Package chaostest tests ledgers with real processes. Workers, a reconciler
// and dispatchers are stopped past their deadlines, killed and replaced.
// Meanwhile operators reassign items, and the database server dies and comes
// back. In the end every item must be done exactly once in effect. The package
// has only tests.
//
// A run of go test does 80 items. CROFT_CHAOS_ITEMS=2000 makes it the full
// size, with as many more faults. CROFT_CHAOS_SEED repeats the choice of
// faults, but not the schedule of the processes.
package chaostest
