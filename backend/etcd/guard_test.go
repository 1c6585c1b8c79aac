package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

var guarded atomic.Int64

// guardHarness makes guarded values on a cluster.
func guardHarness(cluster func(testing.TB) *testenv.EtcdCluster, by law) guardtest.Harness {
	return guardtest.Harness{Large: defaultMaxContent, Slow: true, Make: func(tb testing.TB) guardtest.Resource {
		c := cluster(tb)
		client := dial(tb, c)
		key := fmt.Sprintf("%sguarded %d", c.Prefix(), guarded.Add(1))
		handle := func(tb testing.TB, keys *signed.Keys) *Guard {
			g, err := OpenGuard(client, key, &GuardOptions{Keys: keys})
			if err != nil {
				tb.Fatal(err)
			}
			// The suite needs an answer, even from a slow machine.
			g.law, g.timeout = by, testenv.Patience
			return g
		}
		return guardtest.Resource{
			Open: func(tb testing.TB) guardtest.Handle { return guardtest.Artifact(handle(tb, nil)) },
			Read: func(ctx context.Context) ([]byte, bool, error) {
				resp, err := client.Get(ctx, key)
				if err != nil || len(resp.Kvs) == 0 {
					return nil, false, err
				}
				return resp.Kvs[0].Value, true, nil
			},
			Signed: func(tb testing.TB, keys *signed.Keys) guardtest.Handle {
				return guardtest.Artifact(handle(tb, keys))
			},
		}
	}}
}

// TestGuardConformance holds the guard to every law of a guarded resource.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(testenv.Etcd, theLaw))
}

// TestGuardsBrokenOnPurposeAreCaught by the suite.
func TestGuardsBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	testenv.Etcd(t) // skips the test here where no server may run: no variant could fail
	unchecked := theLaw
	unchecked.compare = false
	lenient := theLaw
	lenient.admit = func(m fence.Mark, s fence.Stamp) (fence.Mark, error) {
		if next, err := m.Admit(s); err == nil {
			return next, nil
		}
		return m, nil
	}
	for name, broken := range map[string]struct {
		by      law
		noticed string
	}{
		"the mark is not compared":  {unchecked, "law 3 with tokens in any order"},
		"stale writes are admitted": {lenient, "every row of the law through Write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(guardtest.Failures(t, guardHarness(testenv.Etcd, broken.by), broken.noticed)) == 0 {
				t.Errorf("not noticed by %q", broken.noticed)
			}
		})
	}
}

func stamp(token fence.Token, grant int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: "jobs/daily", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant)), Seq: seq}
}

// TestOperationsAreCarriedOutOnlyForAnAdmittedStamp, all of them or none.
func TestOperationsAreCarriedOutOnlyForAnAdmittedStamp(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	account, log := c.Prefix()+"account", c.Prefix()+"log"
	g, err := OpenGuard(client, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	pay := func(s fence.Stamp, text string) error {
		got, err := g.Do(ctx, s, clientv3.OpPut(account, text), clientv3.OpPut(log, text), clientv3.OpGet(account))
		if err == nil && (len(got) != 3 || string(got[2].GetResponseRange().Kvs[0].Value) != text) {
			t.Errorf("the responses are %v", got)
		}
		return err
	}
	if err := pay(stamp(20, 1, 1), "5"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    fence.Stamp
		want error
	}{
		"an older owner": {stamp(19, 2, 0), fence.ErrStale}, "a repeated write": {stamp(20, 1, 1), fence.ErrRepeated}, "another grant": {stamp(20, 2, 2), fence.ErrCollision},
	} {
		if err := pay(c.s, "100"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, key := range []string{account, log} {
		if resp, err := client.Get(ctx, key); err != nil || string(resp.Kvs[0].Value) != "5" {
			t.Errorf("refused writes have changed %s: %v, %v", key, resp, err)
		}
	}
}

// TestAGuardIsOpenedByURL, and its target opens the same guard.
func TestAGuardIsOpenedByURL(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, ctx := dial(t, c), t.Context()
	key := c.Prefix() + "report of today #1"
	mine, err := OpenGuard(client, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, key, "before"); err != nil {
		t.Fatal(err)
	}
	if receipt, err := mine.Write(ctx, stamp(20, 1, 0), strings.NewReader("content")); err != nil || receipt.Bytes != 7 || !receipt.Adopted {
		t.Errorf("the first guarded write of what was there: %+v, %v", receipt, err)
	}
	guardtest.ByURL(t, mine, "etcd://localhost", "etcd://localhost/#", "etcd:///#k", "etcd://localhost/?retention=1h#k", "etcd://ann:hunter2@localhost/?nonsense=1#k")
}

// TestANumberedWriteLandsOnceAndNeverLate: a write whose reply was lost is not
// made again. A write that was given up before it was sent does not land after
// a newer one.
func TestANumberedWriteLandsOnceAndNeverLate(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client, w := wired(t, c)
	g, err := OpenGuard(client, c.Prefix()+"numbered", nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(seq uint64) error {
		_, err := g.Write(t.Context(), stamp(7, 1, seq), strings.NewReader(fmt.Sprint(seq)))
		return err
	}
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	w.lose(true)
	if err := write(2); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write without an answer: %v", err)
	}
	w.lose(false)
	w.delay(true)
	if err := write(3); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write without an answer: %v", err)
	}
	w.delay(false)
	if err := write(4); err != nil {
		t.Fatal(err)
	}
	w.deliver(t)
	for _, seq := range []uint64{2, 3, 4} {
		if err := write(seq); !errors.Is(err, fence.ErrRepeated) {
			t.Errorf("write %d after write 4: %v", seq, err)
		}
	}
	var landed []string
	for revision := int64(0); ; {
		resp, err := client.Get(t.Context(), g.key, clientv3.WithRev(revision))
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Kvs) == 0 {
			break
		}
		landed, revision = append(landed, string(resp.Kvs[0].Value)), resp.Kvs[0].ModRevision-1
	}
	if got := strings.Join(landed, " "); got != "4 2 1" {
		t.Errorf("landed, the last one first: %s; want 4 2 1", got)
	}
}
