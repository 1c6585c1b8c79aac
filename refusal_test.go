package croft

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// The limits of package store/refusals.
const (
	recordEvery  = time.Second
	mostRefusals = 8
	recordBound  = 500 * time.Millisecond
)

// refusals returns the refusals that the store remembers.
func (r *rig) refusals(prefix string) []refusals.Refusal {
	r.Helper()
	all, err := refusals.Read(r.Context(), r.st, prefix)
	if err != nil {
		r.Fatal(err)
	}
	return all
}

// known makes keys that the store knows.
func (r *rig) known(c *Client, keys ...string) {
	r.Helper()
	for _, key := range keys {
		if err := r.acquire(c, key, nil).Release(r.Context()); err != nil {
			r.Fatal(err)
		}
	}
}

// stale is a guard's refusal of a stamp that is older than newest.
func stale(s fence.Stamp, newest fence.Token) error {
	return fmt.Errorf("out.json: %w", &fence.StaleError{Presented: s, Newest: fence.Mark{Key: s.Key, Token: newest}})
}

func TestARefusedWriteIsRememberedWithItsOwnerAndTheKeyIsUntouched(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, &Options{Owner: "ann"})
		old := r.acquire(c, "reports/daily", nil)
		if err := old.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		now := r.acquire(r.client(nil, &Options{Owner: "bob"}), "reports/daily", nil)
		before := r.record("reports/daily")
		c.Refused(old.Stamp(), "redis://:geheim@host/0#out", stale(old.Stamp(), now.Token()))
		synctest.Wait()
		all := r.refusals("")
		if len(all) != 1 {
			r.Fatalf("remembered: %+v", all)
		}
		got := all[0]
		if got.At.IsZero() {
			r.Error("it has no time")
		}
		if got.Since != got.At {
			r.Errorf("counted since %s, recorded at %s", got.Since, got.At)
		}
		got.At, got.Since = time.Time{}, time.Time{}
		want := refusals.Refusal{Key: "reports/daily", Token: old.Token(), Owner: "ann", Act: "write", Code: "stale", Newest: now.Token(), Target: "redis://:xxxxx@host/0#out", Count: 1, Total: 1}
		if got != want {
			r.Errorf("remembered %+v\nwant       %+v", got, want)
		}
		if after := r.record("reports/daily"); after.Token != before.Token || len(after.History) != len(before.History) || after.Actor != "" || after.Note != "" {
			r.Errorf("the key's own record was changed: %+v", after)
		}
	})
}

// TestAMadeUpStampIsNobodys: it has the owner's token and another grant. A
// refusal of the owner's own, at the same moment, is recorded apart from it.
func TestAMadeUpStampIsNobodys(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, &Options{Owner: "ann"})
		l := r.acquire(c, "jobs/a", nil)
		issued, madeUp := l.Stamp(), l.Stamp()
		madeUp.Grant = tenure.NewSecret().Grant()
		for _, s := range []fence.Stamp{madeUp, issued, madeUp} {
			c.Refused(s, "out", stale(s, issued.Token+1))
		}
		time.Sleep(2 * recordEvery)
		counts := map[string]int{}
		for _, x := range r.refusals("") {
			counts[x.Owner] += x.Count
		}
		if counts["ann"] != 1 || counts[""] != 2 {
			r.Errorf("refusals by owner: %v, want 1 of ann and 2 of nobody", counts)
		}
	})
}

func TestOtherErrorsAreNotRememberedAsRefusals(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		l := r.acquire(c, "jobs/a", nil)
		for _, err := range []error{nil, errors.New("disk full"), store.Unknown(errors.New("gone")), fence.ErrInvalid, &tenure.HeldError{}} {
			c.Refused(l.Stamp(), "out", err)
		}
		c.Refused(fence.Stamp{}, "out", fence.ErrStale) // a stamp of no owner
		never := fence.Stamp{Key: "made/up", Token: 1, Grant: l.Stamp().Grant}
		c.Refused(never, "out", stale(never, 2)) // of a key that nobody ever had
		if _, err := c.Release(r.Context(), l.Deed(), false); err != nil {
			r.Fatal(err)
		}
		// It was released properly.
		if _, err := c.Renew(r.Context(), l.Deed(), false); !errors.Is(err, ErrNotOwned) {
			r.Fatal(err)
		}
		synctest.Wait()
		if all := r.refusals(""); len(all) != 0 {
			r.Errorf("remembered: %+v", all)
		}
	})
}

func TestRenewalsAndReleasesOfOthersLeasesAreRemembered(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, &Options{Owner: "ann"})
		kept := r.acquire(c, "jobs/kept", &LeaseOptions{TTL: 10 * time.Second})
		deed := r.acquire(c, "jobs/deed", &LeaseOptions{TTL: 10 * time.Second}).Deed()
		op := r.client(nil, &Options{Owner: "op"})
		for _, key := range []string{"jobs/kept", "jobs/deed"} {
			if _, err := op.Takeover(r.Context(), key, ByHand{Note: "drill"}); err != nil {
				r.Fatal(err)
			}
		}
		if _, err := c.Release(r.Context(), deed, false); !errors.Is(err, ErrNotOwned) {
			r.Fatal(err)
		}
		r.wantLost(kept, TakenOver)
		time.Sleep(2 * recordEvery)
		found := map[string]bool{}
		for _, x := range r.refusals("jobs/") {
			if x.Code != "not_owned" || x.Owner != "ann" || x.Newest <= x.Token {
				r.Errorf("remembered %+v", x)
			}
			found[x.Act+" "+x.Key] = true
		}
		if !found["renew jobs/kept"] || !found["release jobs/deed"] {
			r.Errorf("remembered: %v", found)
		}
	})
}

func TestAStormOfRefusalsIsAFewCallsAndStillCounted(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &tap{Store: r.st}
		c := r.client(st, nil)
		const loud, keys, seconds = 1000, 50, 5
		for i := range keys {
			r.known(c, fmt.Sprintf("storm/%d", i))
		}
		st.mu.Lock()
		st.calls = nil
		st.mu.Unlock()
		for range seconds {
			for i := range loud {
				s := fence.Stamp{Key: fmt.Sprintf("storm/%d", i%keys), Token: 1, Grant: tenure.NewSecret().Grant()}
				c.Refused(s, "out", stale(s, 2))
			}
			time.Sleep(recordEvery)
		}
		time.Sleep(2 * recordEvery)
		st.mu.Lock()
		calls := len(st.calls)
		for _, batch := range st.calls {
			if len(batch) > mostRefusals {
				r.Errorf("%d acts in one call", len(batch))
			}
		}
		st.mu.Unlock()
		if calls > 2*seconds+1 {
			r.Errorf("%d calls of the store in %d seconds", calls, seconds)
		}
		count := 0
		for _, x := range r.refusals("storm/") {
			count += x.Count
		}
		// The record keeps the last 32. Some of the first seconds may be
		// forgotten by now. The last seconds are complete.
		if count < 2*loud || count > seconds*loud {
			r.Errorf("%d refusals are remembered of %d", count, seconds*loud)
		}
	})
}

func TestAHangingStoreDelaysNoRefusal(t *testing.T) {
	inBubble(t, func(r *rig) {
		st := &tap{Store: r.st}
		c := r.client(st, nil)
		st.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			<-ctx.Done()
			return store.Failed(len(batch), ctx.Err())
		})
		start := time.Now()
		r.known(r.client(nil, nil), "jobs/a")
		s := fence.Stamp{Key: "jobs/a", Token: 1, Grant: tenure.NewSecret().Grant()}
		for range 100 {
			c.Refused(s, "out", stale(s, 2))
		}
		wantAfter(r, start, 0, 0)
		if err := c.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
		wantAfter(r, start, 0, recordBound)
		c.Refused(s, "out", stale(s, 2)) // after Close, this does nothing
	})
}

func TestCloseRecordsWhatWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		r.known(c, "jobs/a")
		s := fence.Stamp{Key: "jobs/a", Token: 1, Grant: tenure.NewSecret().Grant()}
		for i := range fence.Token(2) {
			s.Token = i + 1
			c.Refused(s, "out", stale(s, 9))
			synctest.Wait()
		}
		if err := c.Close(); err != nil {
			r.Fatal(err)
		}
		if all := r.refusals("jobs/a"); len(all) != 2 {
			r.Errorf("remembered: %+v", all)
		}
	})
}

// TestCloseLeavesNoRecordUnderWay: the caller may close the store next.
func TestCloseLeavesNoRecordUnderWay(t *testing.T) {
	inBubble(t, func(r *rig) {
		var under atomic.Int64
		st := &tap{Store: r.st}
		st.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
			under.Add(1)
			defer under.Add(-1)
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // it ends soon after its context
			return store.Failed(len(batch), ctx.Err())
		})
		r.known(r.client(nil, nil), "jobs/a")
		c := r.client(st, nil)
		s := fence.Stamp{Key: "jobs/a", Token: 1, Grant: tenure.NewSecret().Grant()}
		c.Refused(s, "out", stale(s, 2))
		synctest.Wait()
		if under.Load() != 1 {
			r.Fatal("nothing is being recorded")
		}
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if under.Load() != 0 {
			r.Error("the store is still being called")
		}
	})
}

func TestNobodyTakesALeaseWhereRefusalsAreKept(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		for _, key := range []string{"croft.refused", "croft.refused/jobs", "croft.observed/jobs", "croft.unsure", "croft.unknown/jobs"} {
			if _, err := c.Acquire(r.Context(), key, nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "another name") {
				r.Errorf("acquire %s: %v", key, err)
			}
			if _, err := c.Revoke(r.Context(), key, ByHand{Note: "x"}); !errors.Is(err, ErrInvalid) {
				r.Errorf("revoke %s: %v", key, err)
			}
		}
		r.acquire(c, "croft.refusedx/jobs", nil)
	})
}

func TestRefusalsAreFoundByPrefix(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		long := strings.Repeat("n", 505) + "/key"
		for _, key := range []string{"hello", "reports", "reports/daily", "reports/weekly", "reporting/x", long, "q/" + strings.Repeat(`"`, 510)} {
			r.known(c, key)
			s := fence.Stamp{Key: key, Token: 1, Grant: tenure.NewSecret().Grant()}
			c.Refused(s, strings.Repeat("t", 900), stale(s, 2))
			synctest.Wait()
			time.Sleep(recordEvery)
		}
		for prefix, want := range map[string]string{
			"": "hello reports reports/daily reports/weekly reporting/x", "rep": "reports reports/daily reports/weekly reporting/x", "reports/": "reports/daily reports/weekly",
			"reports/w": "reports/weekly", "reports": "reports reports/daily reports/weekly", "hello": "hello", "none/": "", long: "",
		} {
			var keys []string
			for _, x := range r.refusals(prefix) {
				keys = append(keys, x.Key)
			}
			if got := strings.Join(keys, " "); got != want {
				r.Errorf("%.20q: %s\nwant %s", prefix, got, want)
			}
		}
	})
}

// TestAReleaseThatWasNotSentIsNotNotedAsRefused: the lease was known to be
// lost.
func TestAReleaseThatWasNotSentIsNotNotedAsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		tap := &tap{Store: r.st}
		l := r.acquire(r.client(tap, nil), "jobs/one", nil)
		if _, err := r.client(nil, nil).Takeover(r.Context(), "jobs/one", ByHand{Note: "x"}); err != nil {
			r.Fatal(err)
		}
		<-l.Done() // at the next renewal
		for range 5 {
			if err := l.Release(r.Context()); !errors.Is(err, ErrLost) {
				r.Errorf("%v, want lost", err)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Second)
		if n, _ := tap.count(tenure.Release); n != 0 {
			r.Errorf("%d releases were sent", n)
		}
		for _, refused := range r.refusals("") {
			if refused.Act == "release" {
				r.Errorf("noted: %+v", refused)
			}
		}
	})
}
