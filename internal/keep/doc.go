// Package keep decides: when to renew a lease and when to give it up ([Keeper]), when to ask for a key again and when to stop asking ([Waiter]).
//
// Both are state machines. Step takes an event and the time and returns what is to be done; there is no goroutine, no channel, no clock
// and no store in here. A small runtime in package croft drives them, and a simulator can drive the very same machines from a seed.
package keep
