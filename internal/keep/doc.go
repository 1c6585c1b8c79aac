// Package keep decides when to renew a lease and when to give it up.
//
// A [Keeper] is a state machine. Step takes an event and the time, and returns
// what is to be done. There is no goroutine, no channel, no clock and no store
// in here. Package engine has one Keeper for each lease.
package keep
