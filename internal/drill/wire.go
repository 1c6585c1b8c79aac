package drill

import (
	"context"
	"errors"
	"strings"
	"time"

	httpfence "github.com/croft-dev/croft/boundary/http"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The director and its workers talk in lines of JSON: orders on a worker's standard input, replies on its standard output, matched by
// number. The store's URL travels this way, too: it may hold a password, and arguments and environments can be read by others.

// what is an order's verb.
type what string

const (
	doSetUp    what = "set up"     // open the store
	doLook     what = "look"       // read a record
	doAcquire  what = "acquire"    // take the lease, by the client
	doLoseNext what = "lose reply" // carry out the next acquire and lose the answer to it
	doRepeat   what = "repeat"     // send once more, byte for byte, the first acquire that was sent
	doRenew    what = "renew"      // by deed, whatever the lease says
	doRelease  what = "release"    // by deed, whatever the lease says
	doTakeOver what = "take over"  // by hand
	doWrite    what = "write"      // under the stamp of the last grant, whatever the lease says
	doBegin    what = "begin"      // hand over the first half of a write
	doFinish   what = "finish"     // hand over the rest
	doEnd      what = "end"        // wait for the lease's context to end, at most for Wait
	doCut      what = "cut"        // from now on the store does not answer
	doReach    what = "reach"      // it does again
	doPut      what = "put"        // write over HTTP, under the stamp of the last grant, whatever the lease says
	doCount    what = "count"      // read the meter
)

// order tells a worker what to do.
type order struct {
	ID int  `json:"id"`
	Do what `json:"do"`

	// Store and Owner are for doSetUp.
	Store string `json:"store,omitempty"`
	Owner string `json:"owner,omitempty"`

	Key string `json:"key,omitempty"`
	// Target is the guarded resource, Path the same as a plain file when there is to be no fence.
	Target string        `json:"target,omitempty"`
	Path   string        `json:"path,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
	// At is when to ask, so that many ask at once.
	At     time.Time `json:"at,omitzero"`
	Resume bool      `json:"resume,omitempty"`
	Note   string    `json:"note,omitempty"`
	Text   string    `json:"text,omitempty"`
	// URL is for doPut.
	URL string `json:"url,omitempty"`
}

// reply is what became of an order.
type reply struct {
	ID int `json:"id"`
	// Err is nil if it was done.
	Err *failure `json:"err,omitempty"`
	// Record is the key's, as the answer had it.
	Record tenure.Record `json:"record,omitzero"`
	// Tokens are, for an acquire, those of all its answers, the lost ones included.
	Tokens []fence.Token `json:"tokens,omitempty"`
	// Raised tells, for a takeover, how many fences went up and how many did not.
	Raised, Unraised int `json:",omitempty"`
	// Loss is why a lease ended, At when its context did, Stall the longest time for which this process did not run while it waited.
	Loss  string        `json:"loss,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	Stall time.Duration `json:"stall,omitempty"`
	// Status is an HTTP service's, Metrics what the worker's meter shows.
	Status  int     `json:"status,omitempty"`
	Metrics Metrics `json:"metrics,omitempty"`
}

// kind sorts failures: the first group are answers, the second says that there was none.
type kind string

const (
	kindHeld     kind = "held"
	kindNotOwned kind = "not owned"
	kindStale    kind = "stale"
	kindRefused  kind = "refused" // by a guard, for another reason than age

	kindUnknown kind = "unknown" // by the store
	kindFailed  kind = "failed"  // everything else: bad input, a disk, a process
)

// failure is an error that has come through a pipe.
type failure struct {
	Kind    kind       `json:"kind"`
	Why     tenure.Why `json:"why,omitempty"`
	Message string     `json:"message"`
	// Token is the newest that the refusal knows of.
	Token fence.Token `json:"token,omitempty"`
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Kind: kindFailed, Message: err.Error()}
	var held *tenure.HeldError
	var notOwned *tenure.NotOwnedError
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var problem *httpfence.ProblemError
	switch {
	case errors.As(err, &held):
		f.Kind, f.Why, f.Token = kindHeld, held.Why, held.Record.Token
	case errors.As(err, &notOwned):
		f.Kind, f.Why, f.Token = kindNotOwned, notOwned.Why, notOwned.Record.Token
	case errors.As(err, &stale):
		f.Kind, f.Token = kindStale, stale.Newest.Token
	case errors.As(err, &refused):
		f.Kind, f.Token, f.Why = kindRefused, refused.Mark.Token, reasonOf(refused)
	case errors.As(err, &problem) && errors.Is(err, fence.ErrStale):
		f.Kind, f.Token = kindStale, problem.Newest
	case errors.Is(err, store.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		f.Kind = kindUnknown
	}
	return f
}

// reasonOf is what a guard's refusal rests on, if not on age.
func reasonOf(e *fence.RefusedError) tenure.Why {
	switch {
	case errors.Is(e, fence.ErrCollision):
		return "collision"
	case errors.Is(e, fence.ErrWrongKey):
		return "wrong_key"
	}
	return "repeated"
}

// silent reports that there was no answer: nothing is proved, either way.
func (f *failure) silent() bool {
	return f != nil && (f.Kind == kindUnknown || f.Kind == kindFailed)
}

// spoken is a name of the code as people say it.
func spoken(name string) string { return strings.ReplaceAll(name, "_", " ") }

// brief is an answer in two or three words.
func (f *failure) brief() string {
	switch {
	case f.Kind == kindHeld && f.Why == tenure.WhyHeld:
		return "held by another"
	case f.Why != "":
		return spoken(string(f.Why))
	}
	return string(f.Kind)
}
