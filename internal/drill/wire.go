package drill

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The director and its workers exchange lines of JSON. Orders go to a worker's
// standard input, replies come from its standard output, matched by number. The
// store's URL travels this way, too: it may contain a password, and others can
// read arguments and environments.

// action is what an order asks for.
type action string

const (
	doSetUp    action = "set up"     // open the store
	doLook     action = "look"       // read a record
	doAcquire  action = "acquire"    // acquire the lease through the client
	doLoseNext action = "lose reply" // carry out the next acquire and lose the answer to it
	doRepeat   action = "repeat"     // send the first acquire again, byte for byte
	doRenew    action = "renew"      // by deed, without looking at the lease
	doRelease  action = "release"    // by deed, without looking at the lease
	doTakeOver action = "take over"  // by hand, as an operator
	doWrite    action = "write"      // under the stamp of the last grant, without looking at the lease
	doBegin    action = "begin"      // write the first half of a result
	doFinish   action = "finish"     // write the rest
	doEnd      action = "end"        // wait for the lease's context to end, at most for Wait
	doCut      action = "cut"        // from now on the store does not answer
	doReach    action = "reach"      // the store answers again
	doPut      action = "put"        // write over HTTP, otherwise as doWrite
	doCount    action = "count"      // read the meter
)

// order tells a worker what to do.
type order struct {
	ID int    `json:"id"`
	Do action `json:"do"`

	// Store and Owner are for doSetUp.
	Store string `json:"store,omitempty"`
	Owner string `json:"owner,omitempty"`

	Key string `json:"key,omitempty"`
	// Target is the guarded resource. It is empty if there is no fence: then
	// the worker writes the plain file at Path.
	Target string        `json:"target,omitempty"`
	Path   string        `json:"path,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
	// At is when to send the request, so that many workers send it at once.
	At     time.Time `json:"at,omitzero"`
	Resume bool      `json:"resume,omitempty"`
	Note   string    `json:"note,omitempty"`
	Text   string    `json:"text,omitempty"`
	// URL is for doPut.
	URL string `json:"url,omitempty"`
}

// reply is the outcome of an order.
type reply struct {
	ID int `json:"id"`
	// Err is nil if the order was carried out.
	Err *failure `json:"err,omitempty"`
	// Record is the key's record in the store's answer.
	Record tenure.Record `json:"record,omitzero"`
	// Tokens are the tokens in all answers to an acquire, also in lost ones.
	Tokens []fence.Token `json:"tokens,omitempty"`
	// Raised and Unraised count, for a takeover, the fences that were raised
	// and those that were not.
	Raised, Unraised int `json:",omitempty"`
	// Loss is why a lease ended, and At when its context ended. Stall is the
	// longest time for which this process did not run while it waited.
	Loss  string        `json:"loss,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	Stall time.Duration `json:"stall,omitempty"`
	// Renewed is when the worker's client has renewed its lease, since the last
	// reply.
	Renewed []time.Time `json:"renewed,omitempty"`
	// Status is the HTTP service's status. Metrics are those of the worker's
	// meter.
	Status  int     `json:"status,omitempty"`
	Metrics Metrics `json:"metrics,omitempty"`
}

// kind sorts failures. Those of the first group are answers. Those of the
// second mean that there was no answer.
type kind string

const (
	kindHeld     kind = "held"
	kindNotOwned kind = "not owned"
	kindStale    kind = "stale"
	kindRefused  kind = "refused" // by a guard, but not as stale

	kindUnknown kind = "unknown" // the store does not know, or did not answer
	kindFailed  kind = "failed"  // everything else: bad input, a disk, a process
)

// failure is an error in a form that can be sent through a pipe.
type failure struct {
	Kind    kind       `json:"kind"`
	Why     tenure.Why `json:"why,omitempty"`
	Message string     `json:"message"`
	// Token is the newest token that the refusal names.
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

// reasonOf is the reason of a guard's refusal, if it is not staleness.
func reasonOf(e *fence.RefusedError) tenure.Why {
	switch {
	case errors.Is(e, fence.ErrCollision):
		return "collision"
	case errors.Is(e, fence.ErrWrongKey):
		return "wrong_key"
	}
	return "repeated"
}

// silent reports that there was no answer. Then nothing is proved, either way.
func (f *failure) silent() bool {
	return f != nil && (f.Kind == kindUnknown || f.Kind == kindFailed)
}

// spoken turns a name in the code into words.
func spoken(name string) string { return strings.ReplaceAll(name, "_", " ") }

// brief is a failure in two or three words.
func (f *failure) brief() string {
	switch {
	case f.Kind == kindHeld && f.Why == tenure.WhyHeld:
		return "held by another"
	case f.Why != "":
		return spoken(string(f.Why))
	}
	return string(f.Kind)
}
