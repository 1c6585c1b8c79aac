package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// hold takes the write lock of a file until the returned function is called.
func hold(tb testing.TB, file string) (leave func()) {
	tb.Helper()
	db, err := connections(file, 10*time.Second)
	must(tb, err)
	conn, err := db.Conn(tb.Context())
	must(tb, err)
	_, err = conn.ExecContext(tb.Context(), "BEGIN IMMEDIATE")
	must(tb, err)
	return sync.OnceFunc(func() {
		_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
		_ = conn.Close()
		_ = db.Close()
	})
}

// TestTheLastOfManyIsToldAsSoonAsTheFirst has many callers wait for a lock that
// is never given back. All of them wait LockWait, together and not one after
// the other.
func TestTheLastOfManyIsToldAsSoonAsTheFirst(t *testing.T) {
	t.Parallel()
	const callers, wait = 100, time.Second // one after the other: 100 s
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{LockWait: wait})
	defer st.Close()
	leave := hold(t, file)
	defer leave()
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, ErrBusy) || !errors.Is(a.Err, store.ErrUnknown) {
				t.Errorf("behind a lock that nobody gives back: %v", a.Err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < wait || took > callers*wait/2 {
		t.Errorf("%d callers were told after %s; each may wait %s", callers, took, wait)
	}
	// A new caller waits its own LockWait, however long the others have waited.
	// It may take longer here: the machine may be slow.
	st.options.LockWait = testenv.Patience
	st.blockedSince = time.Now().Add(-2 * testenv.Patience)
	time.AfterFunc(wait/10, leave)
	if a := one(st, acquire("k", "bob")); a.Err != nil {
		t.Errorf("one who came when the others had given up: %v", a.Err)
	}
}

// TestOneBatchCanBeAllAboutOneKey checks that each request sees the changes of
// those before it, as the law says.
func TestOneBatchCanBeAllAboutOneKey(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_800_000_000_000_000).UTC()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{now: func() time.Time { return now }})
	defer st.Close()
	var batch []tenure.Request
	for i := range 250 {
		owner := string(rune('a'+i%26)) + string(rune('a'+i/26))
		req := acquire("k", owner)
		batch = append(batch, req, req, acquire("k", "another"), then(tenure.Release, req), then(tenure.Release, req), then(tenure.Renew, req), req)
	}
	rec := tenure.Record{}
	for i, a := range st.Apply(t.Context(), batch) {
		next, _, refused := tenure.Apply(rec, batch[i], now)
		if (refused == nil) != (a.Err == nil) || refused != nil && refused.Error() != a.Err.Error() {
			t.Fatalf("request %d, %s: %v; the law says %v", i, batch[i].Verb, a.Err, refused)
		}
		if refused == nil {
			rec = next
		}
		if a.Record.Token != rec.Token || a.Record.State != rec.State {
			t.Fatalf("request %d, %s: token %d %s; the law says %d %s", i, batch[i].Verb, a.Record.Token, a.Record.State, rec.Token, rec.State)
		}
	}
	got, err := st.Get(t.Context(), "k")
	must(t, err)
	if len(got.History) != tenure.HistoryLen || got.Terms != rec.Terms {
		t.Errorf("%d transfers, %d terms; the law says %d, %d", len(got.History), got.Terms, len(rec.History), rec.Terms)
	}
	for i, term := range got.History {
		if term != rec.History[i] {
			t.Errorf("transfer %d is %+v; the law says %+v", i, term, rec.History[i])
		}
	}
}
