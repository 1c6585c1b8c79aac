package chaos

import (
	"context"
	"fmt"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/faultnet"
	"github.com/croft-dev/croft/proof/history"
)

// judge is the client that comes after all faults. It acquires every key once
// more, which must succeed, and reads and writes its resource. No fault hits
// its links. It opens everything before the faults begin, so that tables and
// files exist by then.
type judge struct {
	*worker
	links []*faultnet.Link
}

func (r *run) openJudge(ctx context.Context, b brief) (*judge, error) {
	b.Process, b.Owner = "judge", "judge"
	j := &judge{}
	links, err := r.testbed.connect()
	if err != nil {
		return nil, err
	}
	j.links = links
	b.Store, b.Site = r.testbed.reach(links)
	if j.worker, err = b.open(ctx); err != nil {
		return nil, err
	}
	if j.worker == nil {
		return nil, ctx.Err()
	}
	for n := range j.Keys {
		if _, err := j.st.Get(ctx, key(n)); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (j *judge) dismiss() {
	_ = j.close() // its leases lapse
	for _, l := range j.links {
		l.Close()
	}
}

// ask checks all keys, one after the other.
func (j *judge) ask(ctx context.Context) error {
	for n := range j.Keys {
		if err := j.one(ctx, n); err != nil {
			return fmt.Errorf("%s cannot be taken, written and given back after all faults are over: %w", key(n), err)
		}
	}
	return nil
}

func (j *judge) one(ctx context.Context, n int) error {
	p := j.resources[n]
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// A long TTL, so that a slow machine is no failure.
	o := &croft.LeaseOptions{TTL: patience, WaitFor: patience}
	if j.Guarded {
		o.Guards = []guard.Guard{j.guard(n)}
	}
	// The first call on a broken connection may fail, so insist.
	lease, err := insist(ctx, func() (*croft.Lease, error) { return j.client.Acquire(ctx, key(n), o) })
	if err != nil {
		return err
	}
	prior, err := insist(ctx, func() (string, error) { return look(j.rec, key(n), p, patience) })
	if err != nil {
		return err
	}
	stamp := lease.Stamp()
	j.made++
	stamp.Seq = 1
	name := fmt.Sprintf("judge.%d", j.made)
	_, err = insist(ctx, func() (any, error) {
		err := j.rec.Write(stamp, name, prior, func() error {
			if j.Guarded {
				return p.write(ctx, stamp, name)
			}
			return p.bare(ctx, name)
		})
		if history.Admitted(err).Outcome == history.Repeated {
			err = nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	if err := j.applied(ctx, n); err != nil {
		return err
	}
	if _, err := insist(ctx, func() (string, error) { return look(j.rec, key(n), p, patience) }); err != nil {
		return err
	}
	return lease.Release(ctx)
}

// applied records the list of applied updates, if the resource keeps one.
func (j *judge) applied(ctx context.Context, n int) error {
	var known bool
	updates, err := insist(ctx, func() (updates []string, err error) {
		updates, known, err = j.resources[n].applied(ctx)
		return updates, err
	})
	if err == nil && known {
		j.rec.Note(history.Now(), history.Call{Kind: history.Applied, Key: key(n)}, history.Result{
			Outcome: history.OK, Updates: updates,
		})
	}
	return err
}
