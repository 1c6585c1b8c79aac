package engine

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/tenure"
)

// B4: a resume that was answered is not sent again while its lease is given back.
func TestAttackAResumeIsNotSentAgainWhileItIsGivenBack(t *testing.T) {
	r := newRig(t)
	c := newAcquire("jobs/one", 0)
	c.Terms.MaxHold = 60 * time.Second
	r.begin(c)
	r.settle()
	l := r.leaseOf(c)
	r.pass(59900 * time.Millisecond) // no renewal is answered
	if l.Lost == nil || l.Lost.Loss != keep.Unreachable {
		t.Fatalf("%+v", l.Lost)
	}
	r.flying = nil
	for _, b := range append([]*Batch(nil), r.e.outbox.flying...) {
		r.e.outbox.landed(b)
	}
	resume := r.begin(&Call{
		Request: tenure.Request{Verb: tenure.Renew, Key: l.Key, Secret: l.Secret, Resume: true}, Lease: l, Bound: 10 * time.Second,
	})
	r.wantFlight(tenure.Renew)
	b := r.next()
	answers := r.apply(b.Requests, r.now)
	r.pass(200 * time.Millisecond)
	r.e.Answered(r.now, b, answers)
	r.take()
	r.wantFlight(tenure.Release) // MaxHold has passed
	r.pass(1500 * time.Millisecond)
	for _, b := range r.flying {
		for _, req := range b.Requests {
			if req.Verb == tenure.Renew {
				t.Error("the resume was sent again, though it was answered")
			}
		}
	}
	_ = resume
}

// B4b: the caller of a resume leaves while the lease is given back: it is told of the loss.
