package croft

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

type hangGet struct {
	*tap
	bad string
}

func (g *hangGet) Get(ctx context.Context, key string) (tenure.Record, error) {
	if strings.HasSuffix(key, g.bad) {
		<-ctx.Done()
		return tenure.Record{}, ctx.Err()
	}
	return g.tap.Store.Get(ctx, key)
}

// C1: one record that cannot be read does not keep the others from being looked at.
func TestAttackOneHangingLookHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := &hangGet{tap: &tap{Store: r.st}, bad: "/bad"}
		c, other := r.client(g, nil), r.client(nil, nil)
		o := &LeaseOptions{TTL: 6 * time.Second, StallAfter: 1500 * time.Millisecond}
		var leases []*Lease
		for i := range 200 {
			leases = append(leases, r.acquire(c, fmt.Sprint("jobs/", i), o))
			if i == 0 {
				r.acquire(c, "jobs/bad", o)
			}
		}
		for range 20 { // another process reports for all of them but the bad one
			time.Sleep(500 * time.Millisecond)
			for _, l := range leases {
				_, _ = other.Report(r.Context(), l.Deed(), "x")
			}
		}
		lost := 0
		for _, l := range leases {
			if l.Err() != nil {
				lost++
			}
		}
		if lost > 0 {
			r.Errorf("%d of %d leases were lost", lost, len(leases))
		}
	})
}

// C2: a loss is told once.
func TestAttackALossIsToldOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		err := c.Do(r.Context(), "jobs/one", nil, func(ctx context.Context, l *Lease) error {
			if _, err := r.client(nil, nil).Takeover(ctx, "jobs/one", ByHand{Note: "x"}); err != nil {
				return err
			}
			return l.Report(context.WithoutCancel(ctx), "x")
		})
		if !errors.Is(err, ErrLost) || strings.Count(err.Error(), "lease lost") != 1 {
			r.Error(err)
		}
	})
}
