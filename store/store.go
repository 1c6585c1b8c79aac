// Package store is the contract of a lease store, and the registry that opens one from a URL.
//
// A store has one verb for change, [Store.Apply]. What a change means is the law in package tenure; a store only makes each request one atomic
// step. Package store/cas builds a store from any compare-and-swap register, package store/storetest is the suite every store passes.
package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// Store keeps the records of keys. All methods are safe for concurrent use.
type Store interface {
	// Apply carries out requests, each one atomic step on its own key by the store's clock; the batch is a convenience, not a
	// transaction. Requests on one key are carried out in their order. It returns exactly one answer per request, in order, and returns soon after ctx ends: requests without an answer by then
	// are answered with an error matching ErrUnknown. It does not change the requests, nor what they refer to: the caller may have the same ones in another call at the same time.
	Apply(ctx context.Context, requests []tenure.Request) []Answer

	// Get returns the record of a key with its history, or the zero Record if nothing is remembered.
	Get(ctx context.Context, key string) (tenure.Record, error)

	// List yields the records whose key begins with prefix (the empty prefix: all), ordered by key, possibly without their
	// history. It stops after the first error.
	List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error]

	// Now is the store's clock: what deadlines in records are to be compared with.
	Now(ctx context.Context) (time.Time, error)

	// Close lets go of what the store holds open. It releases no lease.
	Close() error
}

// Answer is the outcome of one request.
type Answer struct {
	// Record is the key's record after the request, or as it stands when the request was refused, possibly without its history. It is zero
	// when the outcome is unknown.
	Record tenure.Record
	// Now is the store's time at the decision.
	Now time.Time
	// Awaited says of a release that another client waits for the key, as far as the store knows: one that does not know leaves it false. The client that released then lets
	// others go first, before its own next contender.
	Awaited bool
	// Err is nil if the request took effect, [*tenure.HeldError] or [*tenure.NotOwnedError] if the law refused it, an error matching
	// fence.ErrInvalid if it was bad input, and otherwise matches ErrUnknown: it may or may not have taken effect, and sending the
	// same request again is safe.
	Err error
}

// ErrUnknown is matched by the error of every request whose outcome is not known: the store could not be reached, or did not answer in time.
// It gives no authority and takes none away.
var ErrUnknown = errors.New("outcome unknown")

// UnknownError is the error of a request whose outcome is not known, with what went wrong.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return fmt.Sprintf("store: outcome unknown: %v", e.Err) }

// Unwrap gives the reason.
func (e *UnknownError) Unwrap() error { return e.Err }

// Is makes every UnknownError match ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unknown wraps err so that it matches ErrUnknown, unless it does already.
func Unknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	return &UnknownError{Err: err}
}

// Failed answers every one of n requests with the same unknown outcome.
func Failed(n int, err error) []Answer {
	answers := make([]Answer, n)
	for i := range answers {
		answers[i].Err = Unknown(err)
	}
	return answers
}

// Watcher is a store that can wake waiters. A store that has the method and cannot (because what it is built on cannot) returns an error matching
// errors.ErrUnsupported; the same holds for Examiner.
type Watcher interface {
	// Watch returns a channel that receives soon after the key may have changed; several changes may be one wake-up. It is a hint: the
	// truth is in the next request. The channel is closed when ctx ends or the watch breaks; callers go on by polling.
	//
	// A store may keep an Acquire that it has refused for whoever watches the key next, and grant it when its turn comes. The caller learns of it by asking again with the same request, as soon as it is woken; what nobody asks for the store
	// gives back when the watch ends or a moment has passed.
	Watch(ctx context.Context, key string) (<-chan struct{}, error)
}

// Lookout is a Watcher whose watches also tell, soon after they begin, of a change since the key was last refused through this store: whoever was refused, and watches from then on, need not ask again
// when the watch begins.
type Lookout interface {
	Watcher
	// Sees reports whether it does.
	Sees() bool
}

// Announcer is a store that tells of operators' acts, so that the holder of a
// key learns at once that it was replaced. Who keeps a lease asks for it; a
// store that has the method and cannot tell returns an error matching
// errors.ErrUnsupported.
type Announcer interface {
	// Acts returns a channel that receives a key soon after an operator has
	// taken it over, revoked or reserved it, through this store or another. It
	// is a hint: some acts may be missed, and some keys were not acted on. The
	// channel is closed when ctx ends, or when the store cannot tell any more.
	Acts(ctx context.Context) (<-chan string, error)
}

// Pipelined is a store that gets more done when a second batch is under way beside the first, because most of a call is spent on the way or in a server: the client then has two under way where it has one as a rule. A store whose
// time goes into the disk, or into work of its own, gains more from larger batches.
type Pipelined interface {
	// Pipelines reports whether it does.
	Pipelines() bool
}

// Sweeper is a store that forgets records a retention after they last mattered. Stores sweep by themselves now and then; Sweep does it now, for all keys.
type Sweeper interface {
	Sweep(ctx context.Context) (dropped int, err error)
}

// DefaultRetention is how long a record outlives its last use.
const DefaultRetention = 24 * time.Hour

// Examiner is a store that can tell how fit it is for its task.
type Examiner interface {
	Examine(ctx context.Context) ([]Finding, error)
}

// Level grades a finding.
type Level string

// The levels of a finding.
const (
	OK   Level = "ok"
	Warn Level = "warn" // weaker than it could be
	Bad  Level = "bad"  // not fit
)

// Finding is one fact about a store: what was looked at, what was seen, and what to do about it.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}
