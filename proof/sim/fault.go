package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a kind of fault.
type Fault int

// The faults of messages. Each is drawn whenever a message is sent, served or
// answered.
const (
	LostRequest  Fault = iota // it does not arrive
	LostReply                 // it takes effect, but its reply is lost
	SlowRequest               // it arrives within the time of a call
	SlowReply                 // its reply arrives within the time of a call
	LateRequest               // it arrives after its sender gave up, perhaps after the TTL
	Doubled                   // it arrives twice, the second time at any time
	StaleRead                 // a read returns the state of a moment ago
	Conflict                  // an object store answers 409, for another request in flight, and does nothing
	Throttled                 // an object store answers 429 and does nothing
	LostHint                  // a waiter is not woken
	LateHint                  // a waiter learns late that a key is free
	SlowCommit                // a transaction takes long to commit, with its rows locked
	Aborted                   // a transaction is rolled back at the end
	PausedSend                // the sender is stopped between reading its clock and sending
	PausedStep                // a writer is stopped between the steps of a guard, perhaps with its lock
	GuardCrash                // a writer dies between the steps of a guard
	ServerKilled              // one of croft's servers dies with what it carries
	// The faults of the world, one at a time, at random times.
	Crash      // a client dies and comes back as another instance
	Shutdown   // a client is closed, and comes back as another instance
	Pause      // a client is stopped, but its clocks run on
	Suspend    // a client's machine sleeps: its boot clock runs on, its timers do not
	CutOff     // a client does not reach the store for a while
	ClientRate // a client's clocks change their rate, within 5 %
	StoreRate  // the store's clock changes its rate, within 5 %
	StoreStep  // the store's clock is set forward or back, by up to an hour
	Restart    // the store is down for a moment, and undoes unfinished work
	Failover   // a replica takes over that lacks the last writes
	Rewind     // the store is set back to an older state
	Wipe       // the store forgets everything
	RowLocked  // a foreign transaction locks a row
	Operator   // a key is taken over, reserved or revoked by hand
	Forgery    // a client uses a secret that was never granted, or writes to another key's resource
	ByDeed     // another process renews, reports on or releases a lease by its deed: no fault
	Sweep      // a client drops old records: no fault, but it must do no harm
	faults
)

var faultNames = [faults]string{
	"lost request", "lost reply", "slow request", "slow reply", "late request", "doubled",
	"stale read", "409", "429", "lost hint", "late hint", "slow commit", "aborted", "paused send",
	"paused step", "guard crash", "server killed",
	"crash", "shutdown", "pause", "suspend", "cut off", "client rate", "store rate", "store step",
	"restart", "failover", "rewind", "wipe", "row locked", "operator", "forgery", "by deed",
	"sweep",
}

func (f Fault) String() string { return faultNames[f] }

// MarshalText writes a fault by its name.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a fault by its name.
func (f *Fault) UnmarshalText(text []byte) error {
	i := slices.Index(faultNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("there is no fault %q; there are %s", text, strings.Join(faultNames[:], ", "))
	}
	*f = Fault(i)
	return nil
}

// Firing is one fault that happened, at the nth chance that it had in a run.
type Firing struct {
	Fault  Fault `json:"fault"`
	Chance int   `json:"chance"`
}

func (f Firing) String() string { return fmt.Sprintf("%s at its chance %d", f.Fault, f.Chance) }

// fault decides whether a fault happens at this chance. Each fault has its own
// stream of random numbers. It draws one whether or not it happens, so leaving
// out one fault does not change when others happen.
func (w *world) fault(f Fault) bool {
	rate := w.profile.Chances[f]
	if rate == 0 {
		return false
	}
	w.chances[f]++
	fires := w.luck[f].Float64() < rate && !w.calm
	return fires && w.fires(Firing{f, w.chances[f]})
}

// fires records that a fault happens, unless the case leaves it out.
func (w *world) fires(at Firing) bool {
	if w.c.without(at) {
		return false
	}
	w.fired = append(w.fired, at)
	w.cover("fault", at.Fault.String())
	return true
}
