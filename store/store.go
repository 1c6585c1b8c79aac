// Package store is the contract of a lease store, and the registry that opens a
// store from a URL.
//
// A store has one method that changes records, [Store.Apply]. Package tenure
// has the law: it decides what a request does to a record. A store only makes
// each request one atomic step. Package store/cas builds a store from any
// compare-and-swap register. Package store/storetest is the suite that every
// store passes.
//
// # Writing a store
//
// [Store] is all that a client needs. The other interfaces are optional:
//
//   - [Watcher] wakes waiters.
//   - [Announcer] tells holders of operators' acts.
//   - [Sweeper] forgets old records on demand.
//   - [Examiner] answers `croft doctor`.
//
// A backend calls [Register] from init, with the scheme of its URLs. A program
// then needs only a blank import of the backend to [Open] such a URL. The steps
// from an empty folder to a store on the command line are in CONTRIBUTING.md.
package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Store keeps the records of keys. All methods are safe for concurrent use.
type Store interface {
	// Apply carries out requests. Each request is one atomic step on its own
	// key, at the time of the store's clock. The batch is a convenience, not a
	// transaction. Requests on the same key are carried out in their order.
	//
	// Apply returns exactly one answer per request, in the same order. It
	// returns soon after ctx ends. Requests that have no answer by then get an
	// error that matches ErrUnknown.
	//
	// Apply does not change the requests, nor the values that they refer to.
	// The caller may pass the same requests to another call at the same time.
	Apply(ctx context.Context, requests []tenure.Request) []Answer

	// Get returns the record of a key with its history. It returns the zero
	// Record if the store has none.
	Get(ctx context.Context, key string) (tenure.Record, error)

	// List yields the records whose key begins with prefix, ordered by key. The
	// empty prefix means all keys. The records may come without their history.
	// List stops after the first error. If [OnlyDamaged] is true of that error,
	// List has yielded all records that are not damaged.
	List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error]

	// Now returns the time of the store's clock. Deadlines in records are times
	// of this clock.
	Now(ctx context.Context) (time.Time, error)

	// Close frees the store's resources. It releases no lease.
	Close() error
}

// Answer is the outcome of one request.
type Answer struct {
	// Record is the key's record after the request. If the store refused the
	// request, it is the record as it stands. It may come without its history.
	// It is zero if the outcome is unknown.
	Record tenure.Record
	// Now is the store's time at the decision.
	Now time.Time
	// Awaited is set in the answer to a release if another client waits for the
	// key. A store that cannot tell leaves it false. The client that released
	// the key then lets other clients try before its own next contender.
	Awaited bool
	// Signature is that of the grant's stamp, from a store that signs. See
	// [Answer.Sign].
	Signature fence.Signature
	// Err is nil if the request took effect. It is a [*tenure.HeldError] or a
	// [*tenure.NotOwnedError] if the law refused the request. It matches
	// fence.ErrInvalid if the request was bad input. Any other error matches
	// ErrUnknown: the request may or may not have taken effect, and sending the
	// same request again is safe. A [*FaultError] among those says that it has
	// had no effect.
	Err error
}

// ErrUnknown is matched by the error of every request whose outcome is not
// known: the store could not be reached, or did not answer in time. An unknown
// outcome gives no authority and takes none away.
var ErrUnknown = errors.New("outcome unknown")

// ErrDamaged is matched by errors about a record that the law cannot have
// written: somebody else has changed or planted it. A store decides nothing
// from such a record. A store that cannot tell, because it is behind a server,
// says only ErrUnknown.
var ErrDamaged = errors.New("damaged record")

// OnlyDamaged reports whether an error, or all that are joined in it, match
// [ErrDamaged].
func OnlyDamaged(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		switch e := err.(type) { //nolint:errorlint // the loop unwraps it
		case interface{ Unwrap() []error }:
			return !slices.ContainsFunc(e.Unwrap(), func(one error) bool { return !OnlyDamaged(one) })
		case interface{ Is(target error) bool }:
			if e.Is(ErrDamaged) {
				return true
			}
		}
		if err == ErrDamaged { //nolint:errorlint // the loop unwraps it
			return true
		}
	}
	return false
}

// UnknownError is the error of a request whose outcome is not known. Err is the
// reason.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return fmt.Sprintf("store: outcome unknown: %v", e.Err) }

// Unwrap returns the reason.
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

// FaultError is the error of a request that has certainly changed nothing,
// because it was never sent or the store refused to carry it out, and that
// would fare no better now: the port is closed, the password is wrong, the disk
// is full, the record is damaged. Err says which.
//
// A FaultError also matches ErrUnknown: it gives no authority and takes none
// away. So a holder goes on asking until its deadline, because a fault may
// pass. Only a caller that has nothing to lose gives up at once.
//
// A store returns a FaultError only if no copy of the request that it sent in
// the same call may have taken effect.
type FaultError struct{ Err error }

func (e *FaultError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FaultError) Unwrap() error { return e.Err }

// Is makes every FaultError match ErrUnknown.
func (e *FaultError) Is(target error) bool { return target == ErrUnknown }

// Fault wraps err in a FaultError. It returns nil if err is nil.
func Fault(err error) error {
	if err == nil || IsFault(err) {
		return err
	}
	return &FaultError{Err: err}
}

// IsFault reports whether err is a FaultError, or wraps one. A fault inside an
// UnknownError, or joined with another error, does not count: then something
// else happened, too.
func IsFault(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		switch err.(type) { //nolint:errorlint // the loop unwraps it
		case *FaultError:
			return true
		case *UnknownError:
			return false
		}
	}
	return false
}

// Unreachable wraps the error of a connection that was not made in a
// FaultError, and returns any other error as it is: the port is closed, the
// host is not known, or its certificate is not trusted. The caller knows that
// err is of making the connection, and not of using it.
func Unreachable(err error) error {
	var host *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &host) && host.IsNotFound,
		errors.As(err, &certificate):
		return Fault(err)
	}
	return err
}

// Failed returns n answers, all with the same unknown outcome.
func Failed(n int, err error) []Answer {
	answers := make([]Answer, n)
	for i := range answers {
		answers[i].Err = Unknown(err)
	}
	return answers
}

// Watcher is a store that can wake waiters.
//
// A store may have the method and yet be unable to watch, because its register
// cannot. Watch then returns an error that matches errors.ErrUnsupported. The
// same holds for Examiner.
type Watcher interface {
	// Watch returns a channel that receives soon after the key may have
	// changed. Several changes may be one wake-up. A wake-up is a hint: only
	// the next request tells the truth. The store closes the channel when ctx
	// ends or the watch breaks. The caller then goes on by polling.
	Watch(ctx context.Context, key string) (<-chan struct{}, error)
}

// Announcer is a store that announces operators' acts, so that the holder of a
// key learns at once that it was replaced. A client that holds leases calls
// Acts. A store that has the method but cannot announce returns an error that
// matches errors.ErrUnsupported.
type Announcer interface {
	// Acts returns a channel that receives a key soon after an operator has
	// taken it over, revoked or reserved it, through this store or another. It
	// is a hint: some acts may be missed, and some keys may be named without an
	// act. The store closes the channel when ctx ends, or when it can no longer
	// announce.
	Acts(ctx context.Context) (<-chan string, error)
}

// Sweeper is a store that forgets records after their retention. Stores sweep
// by themselves now and then. Sweep does it now, for all keys, and returns the
// number of dropped records.
type Sweeper interface {
	Sweep(ctx context.Context) (dropped int, err error)
}

// DefaultRetention is how long a store keeps a record after its last use.
const DefaultRetention = 24 * time.Hour

// Examiner is a store that can check whether it is fit for its task.
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

// Finding is one fact about a store: the check, its grade, the observation, and
// advice.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}
