package worktest

import (
	"context"
	"errors"

	"github.com/croft-dev/croft/work"
)

func handles() []check {
	return []check{
		{"all handles see the same items", func(t *trial) {
			h := t.running("q")
			other := t.open()
			if a := other.Apply(t.ctx, []work.Request{h.by(work.Complete)})[0]; a.Err != nil {
				t.Fatalf("completing by another handle: %v", a.Err)
			}
			if t.get(h.ID).State != work.Done {
				t.Fatalf("the first handle does not see it")
			}
		}},
		{"closing one leaves the others open", func(t *trial) {
			other := t.Open(t.TB)
			if err := other.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			h := t.running("q")
			for _, a := range other.Apply(t.ctx, []work.Request{h.by(work.Complete), added("q")}) {
				if !errors.Is(a.Err, work.ErrUnknown) {
					t.Fatalf("Apply after Close: %v, want unknown", a.Err)
				}
			}
			if _, err := other.Claim(t.ctx, claimOf("q")); !errors.Is(err, work.ErrUnknown) {
				t.Fatalf("Claim after Close: %v, want unknown", err)
			}
			t.must(h.by(work.Complete))
		}},
		{"a context that has ended is answered with unknown, and changes nothing", func(t *trial) {
			h := t.running("q")
			t.emits("e", "x")
			d := dispatcher(1)
			taken := t.take(work.Taking{Stamp: d, Limit: 1, Hold: long})
			if len(taken) != 1 {
				t.Fatalf("took %d effects", len(taken))
			}
			sent := work.Settlement{Effect: taken[0].EffectID, Attempt: 1, Stamp: d, State: work.Sent}
			ended, cancel := context.WithCancel(t.ctx)
			cancel()
			answers := t.ledger.Apply(ended, []work.Request{h.by(work.Complete), added("q")})
			if len(answers) != 2 {
				t.Fatalf("%d answers", len(answers))
			}
			for _, a := range answers {
				if !errors.Is(a.Err, work.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
					t.Fatalf("Apply: %v, want unknown because the context was cancelled", a.Err)
				}
			}
			settled := t.ledger.Settle(ended, []work.Settlement{sent})
			if len(settled) != 1 {
				t.Fatalf("%d answers to a settlement", len(settled))
			}
			if err := settled[0].Err; !errors.Is(err, work.ErrUnknown) || !errors.Is(err, context.Canceled) {
				t.Fatalf("Settle: %v, want unknown because the context was cancelled", err)
			}
			if _, err := t.ledger.Claim(ended, claimOf("q")); !errors.Is(err, context.Canceled) {
				t.Fatalf("Claim: %v", err)
			}
			if _, err := t.ledger.Take(ended, work.Taking{
				Stamp: d, Limit: 1, Hold: long,
			}); !errors.Is(err, context.Canceled) {
				t.Fatalf("Take: %v", err)
			}
			if _, err := t.ledger.Get(ended, h.ID); !errors.Is(err, context.Canceled) {
				t.Fatalf("Get: %v", err)
			}
			for _, err := range t.ledger.List(ended, work.Query{}) {
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("List: %v", err)
				}
			}
			t.must(h.by(work.Complete))
			if a := t.settle(sent); a.Err != nil || a.Repeated {
				t.Fatalf("settling it then: %v, repeated %v; want it settled now", a.Err, a.Repeated)
			}
		}},
		{"a caller may change its bytes afterwards", func(t *trial) {
			add := added("q")
			payload := []byte("payload")
			add.Payload = payload
			t.must(add)
			payload[0] = 'X'
			h := t.claimed("q", long)
			if string(h.Payload) != "payload" {
				t.Fatalf("the payload is %q", h.Payload)
			}
			h.Payload[0] = 'Y'
			if got := t.get(h.ID).Payload; string(got) != "payload" {
				t.Fatalf("the payload kept is %q", got)
			}
		}},
	}
}
