package postgres_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/operator"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func revocation(key string) tenure.Request {
	return tenure.Request{
		Verb: tenure.Revoke, Key: key, Secret: tenure.NewSecret(), Actor: "op", Note: "why",
	}
}

func actsOf(t *testing.T, st *postgres.Store) <-chan string {
	t.Helper()
	keys, err := st.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// told waits for the next key, which must be this one.
func told(t *testing.T, keys <-chan string, want string) {
	t.Helper()
	select {
	case key, open := <-keys:
		if key != want || !open {
			t.Fatalf("told of %q, open %t; want %q", key, open, want)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("not told of %q", want)
	}
}

// ended waits for the end of announcements.
func ended(t *testing.T, keys <-chan string) {
	t.Helper()
	select {
	case key, open := <-keys:
		if open {
			t.Fatalf("told of %q; want the end", key)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the announcements go on")
	}
}

// TestATakeoverEndsTheHoldersContext: the context ends long before the holder's
// next renewal.
func TestATakeoverEndsTheHoldersContext(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	other, _ := fresh(t, postgres.Options{Schema: name})
	must(t, st, claim("acts/other", "bob")) // the schema is made
	operator.TakesOverAtOnce(t, st, other)
}

// TestAnActIsOneNotification: this holds in a batch, too. A repeated act
// notifies nobody, because the first act was committed with its notification. A
// refused act notifies nobody either.
func TestAnActIsOneNotification(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	mine := claim("acts/one", "ann")
	must(t, st, mine)
	heard := listen(t, name)
	act := revocation(mine.Key)
	must(t, st, act)
	must(t, st, act)
	refused := revocation(mine.Key)
	refused.Secret = mine.Secret
	if a := one(t.Context(), st, refused); a.Err == nil {
		t.Error("a secret was granted twice")
	}
	must(t, st, claim(mine.Key, "bob"))
	batch := []tenure.Request{revocation("acts/2"), claim("acts/3", "ann"), revocation("acts/4"), act}
	for i, a := range st.Apply(t.Context(), batch) {
		if (a.Err == nil) != (i < 3) {
			t.Errorf("%s of %s: %v", batch[i].Verb, batch[i].Key, a.Err)
		}
	}
	must(t, st, revocation("acts/last"))
	for _, key := range []string{mine.Key, "acts/2", "acts/4", "acts/last"} {
		if note := heard.next(); note != "\x04"+key {
			t.Errorf("heard %q, want the act on %q", note, key)
		}
	}
}

// TestTheLongestKeyIsAnnounced: the server takes 8,000 bytes at a time.
func TestTheLongestKeyIsAnnounced(t *testing.T) {
	t.Parallel()
	st, _ := fresh(t, postgres.Options{})
	keys := actsOf(t, st)
	for _, letter := range []string{"x", "é"} {
		key := strings.Repeat(letter, fence.MaxKey/len(letter))
		must(t, st, revocation(key))
		told(t, keys, key)
	}
}

// TestAStrangeNotificationTellsNobody: every role of the database can notify,
// so the store must check every key that it hears of.
func TestAStrangeNotificationTellsNobody(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	must(t, st, claim("acts/strange", "ann")) // the schema is made
	keys := actsOf(t, st)
	for _, payload := range []string{
		"", "\x04", "\x04/", "\x04../up", "\x04a\nb", "\x04a\x1bc", "\x04\x04acts/strange",
		"acts/strange", "\x02", "\x02x acts/strange", "\x03acts/strange", "\x05acts/strange",
		"\x04" + strings.Repeat("x", fence.MaxKey+1), "\x04" + strings.Repeat("x", 7998),
	} {
		exec(t, "SELECT pg_notify($1, $2)", name+".wake", payload)
	}
	must(t, st, revocation("acts/real"))
	told(t, keys, "acts/real") // they come in order: nothing came before it
}

// TestAnnouncementsThatBreakEnd: they begin again when the client asks for
// them.
func TestAnnouncementsThatBreakEnd(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{})
	keys := actsOf(t, st)
	must(t, st, revocation("acts/before"))
	told(t, keys, "acts/before")
	exec(t, listeners("pg_terminate_backend(pid)"), name)
	ended(t, keys)
	keys = actsOf(t, st)
	must(t, st, revocation("acts/after"))
	told(t, keys, "acts/after")
}

// listeners returns a statement that selects something (what) about the
// connections that listen in a schema.
func listeners(what string) string {
	return "SELECT " + what + ` FROM pg_stat_activity
		WHERE query LIKE 'LISTEN "' || $1::text || '.wake"%'`
}

// TestAClosedStoreAnnouncesNothing: its channels are closed, and no goroutine
// and no connection is left. It is not parallel because it counts goroutines.
func TestAClosedStoreAnnouncesNothing(t *testing.T) {
	_, name := fresh(t, postgres.Options{})
	goroutines := runtime.NumGoroutine()
	st := postgres.New(shared(t), &postgres.Options{Schema: name})
	all := []<-chan string{actsOf(t, st), actsOf(t, st)}
	if n := number(t, listeners("count(*)"), name); n != 1 {
		t.Errorf("%d connections listen for a store", n)
	}
	closes(t, st)
	for _, keys := range all {
		ended(t, keys)
	}
	_, err := st.Acts(t.Context())
	if !errors.Is(err, store.ErrUnknown) || !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Acts of a closed store: %v", err)
	}
	testenv.Eventually(t, "nothing is left", func() error {
		n, connections := runtime.NumGoroutine(), number(t, listeners("count(*)"), name)
		if n > goroutines || connections > 0 {
			return fmt.Errorf("%d goroutines of %d, %d connections", n, goroutines, connections)
		}
		return nil
	})
}

// TestAnActSucceedsThoughItCannotBeTold: the server's queue of notifications is
// full. One session that listens and sleeps in a transaction can cause that.
// The test replaces the database's own functions by some that behave so.
func TestAnActSucceedsThoughItCannotBeTold(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	own := pg.Database(t)
	p := pool(t, own)
	defer p.Close()
	st := postgres.New(p, nil)
	defer st.Close()
	must(t, st, claim("acts/untold", "ann"))
	pg.Query(t, strings.TrimPrefix(mustParse(t, own).Path, "/"), `SET allow_system_table_mods = on;
		ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO was_pg_notify;
		CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue'; END $$;
		ALTER FUNCTION pg_catalog.pg_notification_queue_usage() RENAME TO was_queue_usage;
		CREATE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql
		AS $$ SELECT 1::double precision $$`)
	a := one(t.Context(), st, revocation("acts/untold"))
	if a.Err != nil || a.Record.State != tenure.Free {
		t.Errorf("a revocation that cannot be told: %v, %+v", a.Err, a.Record)
	}
}
