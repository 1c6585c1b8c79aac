package croft

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestTheNextHolderGetsTheCheckpoint: however the lease before it ended. The
// bytes are those of the beginning, whatever is saved later.
func TestTheNextHolderGetsTheCheckpoint(t *testing.T) {
	for name, end := range map[string]func(r *rig, c *Client, l *Lease){
		"released": func(r *rig, _ *Client, l *Lease) { _ = l.Release(r.Context()) },
		"failed":   func(r *rig, _ *Client, l *Lease) { _ = l.Fail(r.Context()) },
		"crashed":  func(_ *rig, c *Client, _ *Lease) { c.Close(); time.Sleep(time.Hour) },
		"taken over": func(r *rig, _ *Client, l *Lease) {
			_, _ = r.client(nil, nil).Revoke(r.Context(), l.Key(), ByHand{Note: "x"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				c := r.client(nil, nil)
				l := r.acquire(c, "jobs/one", nil)
				if first := l.Checkpoint(); len(first) != 0 {
					r.Errorf("the first holder got %q", first)
				}
				state := []byte("page 1\x00\xff")
				if err := l.Save(r.Context(), state); err != nil {
					r.Fatal(err)
				}
				state[0] = 'X' // the caller's bytes are its own
				end(r, c, l)
				next := r.acquire(r.client(nil, nil), "jobs/one", nil)
				got := next.Checkpoint()
				if string(got) != "page 1\x00\xff" {
					r.Errorf("the next holder got %q", got)
				}
				got[0] = 'Y'
				if err := next.Save(r.Context(), nil); err != nil {
					r.Fatal(err)
				}
				if again := next.Checkpoint(); string(again) != "page 1\x00\xff" || next.Record().Checkpoint != "" {
					r.Errorf("after a save it began with %q, and the record has %q", again, next.Record().Checkpoint)
				}
				if err := l.Save(r.Context(), []byte("late")); !errors.Is(err, ErrLost) {
					r.Errorf("a save of the former holder: %v, want lost", err)
				}
				if rec, err := c.Save(r.Context(), l.Deed(), []byte("late")); err == nil || rec.Checkpoint != "" {
					r.Errorf("a save by the former deed: %v, %q", err, rec.Checkpoint)
				}
			})
		})
	}
}

// TestAResumedLeaseHasItsOwnCheckpoint: and so has an adopted one.
func TestAResumedLeaseHasItsOwnCheckpoint(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, clk := r.sleeper(nil, nil)
		l := r.acquire(c, "jobs/one", nil)
		if rec, err := r.client(nil, nil).Save(r.Context(), l.Deed(), []byte("page 7")); err != nil || rec.Checkpoint != "page 7" {
			r.Fatalf("saved by deed: %q, %v", rec.Checkpoint, err)
		}
		clk.Suspend(time.Hour)
		time.Sleep(2 * time.Minute)
		resumed, err := l.Resume(r.Context())
		if err != nil || string(resumed.Checkpoint()) != "page 7" {
			r.Fatalf("resumed: %v", err)
		}
		adopted, err := r.client(nil, nil).Adopt(r.Context(), l.Deed(), nil)
		if err != nil || string(adopted.Checkpoint()) != "page 7" {
			r.Fatalf("adopted: %v", err)
		}
	})
}

// TestASaveSaysWhatBecameOfIt: too large is bad input, and changes nothing. If
// replies are lost, Save asks again. If none comes, the outcome is unknown.
func TestASaveSaysWhatBecameOfIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: storetest.DropReply(r.st, storetest.First(2, func(q tenure.Request) bool { return q.Verb == tenure.Checkpoint }))}
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		if err := l.Save(r.Context(), []byte("page 1")); err != nil || r.record("jobs/one").Checkpoint != "page 1" {
			r.Errorf("with lost replies: %v, saved %q", err, r.record("jobs/one").Checkpoint)
		}
		if err := l.Save(r.Context(), bytes.Repeat([]byte{0}, tenure.MaxCheckpoint+1)); !errors.Is(err, ErrInvalid) {
			r.Errorf("too large: %v, want invalid", err)
		}
		tap.set(only(tenure.Checkpoint, hang))
		if err := l.Save(r.Context(), []byte("page 2")); !errors.Is(err, ErrUnknown) {
			r.Errorf("without an answer: %v, want unknown", err)
		}
		if rec := r.record("jobs/one"); rec.Checkpoint != "page 1" || l.Err() != nil {
			r.Errorf("then %q is saved, and the lease is %v", rec.Checkpoint, l.Err())
		}
	})
}
