package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// allReads returns all calls that change nothing.
func allReads(st *Store, g *Guard) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error { _, err := st.Get(ctx, "reads/key"); return err },
		"List": func(ctx context.Context) error {
			n := 0
			for _, err := range st.List(ctx, "") {
				if err != nil {
					return err
				}
				n++
			}
			if n != 1 {
				return fmt.Errorf("%d records", n)
			}
			return nil
		},
		"Examine": func(ctx context.Context) error {
			findings, err := st.Examine(ctx)
			for _, f := range findings {
				if err == nil && strings.Contains(f.Seen, "cannot be seen") {
					err = fmt.Errorf("%s: %s", f.Check, f.Seen)
				}
			}
			return err
		},
		"Mark":    func(ctx context.Context) error { _, err := g.Mark(ctx); return err },
		"Rekeyed": func(ctx context.Context) error { _, err := g.Rekeyed(ctx); return err },
	}
}

// readFixture makes a store with one record, and a guard.
func readFixture(t *testing.T, c *testenv.EtcdCluster, client *clientv3.Client) (*Store, *Guard) {
	t.Helper()
	st := open(t, client, c.Prefix())
	must(t, st, claim("reads/key", "ann"))
	g, err := OpenGuard(client, c.Prefix()+"guarded", nil)
	if err != nil {
		t.Fatal(err)
	}
	return st, g
}

// TestReadsAreTriedAgain if the connection breaks during a call.
func TestReadsAreTriedAgain(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	st, g := readFixture(t, c, client)
	w.breaks()
	for name, read := range allReads(st, g) {
		if err := read(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a := one(t.Context(), open(t, client, c.Prefix()), claim("reads/key", "bob")); a.Err == nil {
		t.Error("a key that is held was granted")
	}
}

// TestReadsOutliveTheMemberTheyAreSentTo: it stops answering, and then it is
// gone. Others are up.
func TestReadsOutliveTheMemberTheyAreSentTo(t *testing.T) {
	t.Parallel()
	c := testenv.EtcdThree(t, "unsafe-no-fsync: true")
	opened, err := store.Open(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	st := opened.(*Store)
	must(t, st, claim("reads/key", "ann"))
	g, err := OpenGuard(st.client, c.Prefix()+"guarded", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := allReads(st, g)
	for _, leads := range []bool{false, true} {
		dying := c.Leader(t)
		for _, m := range c.Members {
			if !leads && m != dying {
				dying = m
				break
			}
		}
		dying.Pause(t)
		var calls sync.WaitGroup
		asked := make(chan struct{}, 3*len(all))
		for name, read := range all {
			// The client goes from member to member, so one of three calls is
			// sent to this one.
			for range 3 {
				calls.Go(func() {
					if err := read(t.Context()); err != nil {
						t.Errorf("%s while a member dies (the leader: %t): %v", name, leads, err)
					}
					asked <- struct{}{}
				})
			}
		}
		// Calls that went elsewhere have returned, if the others have a leader.
		// The rest are in flight to this member.
		select {
		case <-asked:
		case <-time.After(300 * time.Millisecond):
		}
		dying.Kill()
		calls.Wait()
		dying.Restart(t)
	}
}

// TestAMissingAnswerNamesNoOtherBound: calls have different bounds, and a read
// is tried several times. So the error of a call must not name requestTimeout.
func TestAMissingAnswerNamesNoOtherBound(t *testing.T) {
	t.Parallel()
	_, err := once(t.Context(), time.Millisecond, func(ctx context.Context) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), requestTimeout.String()) {
		t.Errorf("a call that was bounded by a millisecond: %v", err)
	}
}
