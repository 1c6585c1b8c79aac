package croft

import (
	"testing"
	"time"
)

// TestATakeoverEndsTheHoldersContextAtOnce: and so do a revocation and a
// reservation, on a store that announces operators' acts.
func TestATakeoverEndsTheHoldersContextAtOnce(t *testing.T) {
	for name, act := range map[string]func(r *rig, operator *Client) error{
		"takeover": func(r *rig, operator *Client) error {
			_, err := operator.Takeover(r.Context(), "jobs/one", ByHand{Note: "stuck"})
			return err
		},
		"revoke": func(r *rig, operator *Client) error {
			_, err := operator.Revoke(r.Context(), "jobs/one", ByHand{Note: "stuck"})
			return err
		},
		"reserve": func(r *rig, operator *Client) error {
			_, err := operator.Reserve(r.Context(), "jobs/one", "bob", ByHand{Note: "stuck"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				l := r.acquire(r.client(nil, nil), "jobs/one", &LeaseOptions{TTL: time.Minute})
				other := r.acquire(r.client(nil, nil), "jobs/two", nil)
				time.Sleep(time.Second)
				start := time.Now()
				if err := act(r, r.client(nil, nil)); err != nil {
					r.Fatal(err)
				}
				r.wantLost(l, TakenOver)
				wantAfter(r, start, 0, 0)
				if err := other.Err(); err != nil {
					r.Error(err)
				}
			})
		})
	}
}
