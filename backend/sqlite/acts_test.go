package sqlite

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func revoke(key string) tenure.Request {
	return tenure.Request{
		Verb: tenure.Revoke, Key: key, Secret: tenure.NewSecret(), Actor: "operator", Note: "a test",
	}
}

func listen(tb testing.TB, st *Store) <-chan string {
	tb.Helper()
	c, err := st.Acts(tb.Context())
	must(tb, err)
	return c
}

// heard expects the channel to receive this key next, or to be closed if key is
// "". The same act may come twice: once when it was done and once when it was
// read from the file.
func heard(tb testing.TB, c <-chan string, before, want string) {
	tb.Helper()
	for {
		select {
		case key, open := <-c:
			if open && key == before {
				continue
			}
			if key != want || open != (want != "") {
				tb.Fatalf("told of %.600q (open: %t), want %q", key, open, want)
			}
			return
		case <-time.After(testenv.Patience):
			tb.Fatalf("not told of %q", want)
		}
	}
}

// TestNothingLooksForActsWhileNobodyListens checks that polling ends with the
// last listener, and that a listener makes it read no key.
func TestNothingLooksForActsWhileNobodyListens(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
	defer st.Close()
	looking := func() (keys []string, looks bool) {
		st.watch.mu.Lock()
		defer st.watch.mu.Unlock()
		return slices.Collect(maps.Keys(st.watch.keys)), st.watch.polling
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := st.Acts(ctx)
		must(t, err)
		if keys, looks := looking(); !looks || !slices.Equal(keys, []string{acts}) {
			t.Errorf("somebody listens, and it looks (%t) at %q", looks, keys)
		}
		cancel()
		for range c { // until it is closed
		}
		testenv.Eventually(t, "the end of looking", func() error {
			if _, looks := looking(); looks {
				return fmt.Errorf("nobody listens any more, and it still looks")
			}
			return nil
		})
	}
}

// TestActsAreToldToListenersThatBeganBesideAWaiter checks that a new listener
// hears of an act in a version of the file that the waiter's polling has
// already seen.
func TestActsAreToldToListenersThatBeganBesideAWaiter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	_, err := st.Watch(t.Context(), "waited")
	must(t, err)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := st.Acts(ctx)
		must(t, err)
		key := fmt.Sprintf("job/%d", i)
		execute(t, file, "INSERT INTO croft_act (key) VALUES ('"+key+"')") // as another process does
		heard(t, c, "", key)
		cancel()
	}
}

func TestPlantedActsAreIgnored(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	c := listen(t, st)
	for _, key := range []string{
		"''", "'/'", "'a' || char(10) || 'b'", "CAST(x'ff' AS TEXT)",
		"hex(zeroblob(1000))", "hex(zeroblob(10000000))",
	} {
		execute(t, file, "INSERT INTO croft_act (key) VALUES ("+key+")")
	}
	execute(t, file, "INSERT INTO croft_act (key) VALUES ('after')")
	heard(t, c, "", "after")
	must(t, one(st, revoke("job")).Err)
	heard(t, c, "", "job")
}

// TestActsGoOnWithoutTheirTable checks that an operator's request succeeds even
// if its act cannot be written. Other processes do not hear of it then.
func TestActsGoOnWithoutTheirTable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"removed":  "DROP TABLE croft_act",
		"another":  "DROP TABLE croft_act; CREATE TABLE croft_act (unlike)",
		"full":     "INSERT INTO croft_act (id, key) VALUES (9223372036854775807, 'x')",
		"refusing": "CREATE TRIGGER t BEFORE INSERT ON croft_act BEGIN SELECT RAISE(ABORT, 'no'); END",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(memoryDir(t), "croft.db")
			st := open(t, file, nil)
			defer st.Close()
			c := listen(t, st)
			must(t, one(st, acquire("job", "ann")).Err)
			execute(t, file, change)
			must(t, one(st, revoke("job")).Err)
			rec, err := st.Get(t.Context(), "job")
			must(t, err)
			if rec.State == tenure.Held {
				t.Errorf("the record is %+v", rec)
			}
			for key := range c { // by this process, or closed by now
				if key == "job" {
					break
				}
			}
		})
	}
}

// TestAFailedCommitIsNotAFaultOfItsActs: the database is full when acts are
// written, and the commit fails for another reason. Then nobody knows whether
// the transaction counts. If the full database has ended the transaction, that
// is certain, and the error says it.
func TestAFailedCommitIsNotAFaultOfItsActs(t *testing.T) {
	t.Parallel()
	for commit, fault := range map[string]bool{
		"UPDATE croft_lease SET key = NULL":  false, // fails, but not for lack of a transaction
		"ROLLBACK TO no_such_savepoint -- 1": true,  // fails like the commit of a transaction that was rolled back
	} {
		file := filepath.Join(memoryDir(t), "croft.db")
		st := open(t, file, nil)
		var keys []string
		for i := range 64 {
			keys = append(keys, fmt.Sprintf("job/%d/%s", i, strings.Repeat("k", 480)))
			must(t, one(st, acquire(keys[i], "ann")).Err)
		}
		must(t, st.Close())
		failing := open(t, file, &Options{begin: sqlBegin, commit: commit})
		err := failing.do(t.Context(), 1, func(x *transaction) {
			for _, key := range keys {
				req := revoke(key)
				if a := x.apply(&req); a.Err != nil {
					t.Error(a.Err)
				}
			}
			x.run("PRAGMA max_page_count = 1") // writes the records first, and leaves no room for the acts
		})
		if err == nil || store.IsFault(err) != fault {
			t.Errorf("%q: %v", commit, err)
		}
		must(t, failing.Close())
	}
}

func TestFewActsAreKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	for round := range 3 {
		var requests []tenure.Request
		for i := range mostActs {
			requests = append(requests, revoke(fmt.Sprintf("job/%d/%d", round, i)))
		}
		for _, a := range st.Apply(t.Context(), requests) {
			must(t, a.Err)
		}
	}
	must(t, one(st, revoke("last")).Err)
	var kept int
	var last string
	query(t, file, "SELECT count(*), (SELECT key FROM croft_act ORDER BY id DESC) FROM croft_act",
		&kept, &last)
	if kept != mostActs || last != "last" {
		t.Errorf("%d acts are kept, the last of %s", kept, last)
	}
}

// TestBrokenAnnouncementsCanBeHadAgain moves the file away and has a new one
// made in its place. The listener's channel breaks, and it can listen again.
func TestBrokenAnnouncementsCanBeHadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	c := listen(t, st)
	execute(t, file, "INSERT INTO croft_act (key) VALUES ('before')") // as another process does
	heard(t, c, "", "before")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		must(t, os.Rename(file+suffix, file+".old"+suffix))
	}
	heard(t, c, "before", "")
	other := open(t, file, nil)
	defer other.Close()
	c = listen(t, st)
	must(t, one(other, revoke("after")).Err)
	heard(t, c, "", "after")
}

func TestClosingEndsAnnouncements(t *testing.T) {
	t.Parallel()
	st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
	c := listen(t, st)
	must(t, st.Close()) // waits for background work
	heard(t, c, "", "")
	if _, err := st.Acts(t.Context()); err == nil {
		t.Error("a closed store tells of acts")
	}
}
