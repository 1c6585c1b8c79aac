// Package chaostest holds ledgers to their promise with real processes: workers, a reconciler and dispatchers that are stopped past their deadlines, killed and replaced while operators reassign their items and
// the database dies under them. It has only tests.
//
// A run of go test does 80 items. CROFT_CHAOS_ITEMS=2000 makes it the full size,
// with as many more faults. CROFT_CHAOS_SEED repeats the choice of faults, but not
// the schedule of the processes.
package chaostest
