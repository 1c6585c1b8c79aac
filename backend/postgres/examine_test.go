package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

func examined(t *testing.T, st *postgres.Store) map[string]store.Finding {
	t.Helper()
	findings, err := st.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]store.Finding{}
	for _, f := range findings {
		seen[f.Check] = f
		if (f.Level == store.OK) != (f.Advice == "") {
			t.Errorf("%s is %s and advises %q", f.Check, f.Level, f.Advice)
		}
	}
	return seen
}

// TestTheDoctorSeesWhatWeakensAStore: each weak setting has a finding that
// explains it.
func TestTheDoctorSeesWhatWeakensAStore(t *testing.T) {
	st, _ := fresh(t, postgres.Options{})
	for check, level := range map[string]store.Level{
		"version": store.OK, "tier": store.OK, "synchronous_commit": store.OK, "encoding": store.OK, "clock": store.OK, "schema": store.OK,
		"notifications": store.OK, "open transactions": store.OK, "keys": store.OK,
		"fsync": store.Bad, // as the tests' server is
	} {
		if f := examined(t, st)[check]; f.Level != level {
			t.Errorf("%s: %+v, want %s", check, f, level)
		}
	}
	must(t, st, claim("doctor", "ann"))
	if f := examined(t, st)["keys"]; f.Seen != "1" {
		t.Errorf("keys: %+v", f)
	}

	shared(t)
	weak, err := postgres.Open(t.Context(), server.url+"&synchronous_commit=off&default_transaction_read_only=on&schema="+schema())
	if err != nil {
		t.Fatal(err)
	}
	defer weak.Close()
	for check, level := range map[string]store.Level{"synchronous_commit": store.Warn, "tier": store.Bad} {
		if f := examined(t, weak)[check]; f.Level != level {
			t.Errorf("%s: %+v, want %s", check, f, level)
		}
	}
}

// TestTheDoctorMakesNothing: an examined database is as it was.
func TestTheDoctorMakesNothing(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	url := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, url).Path, "/")
	pg.Query(t, "postgres", "CREATE ROLE visitor_"+database+" LOGIN")
	st, err := postgres.Open(t.Context(), strings.Replace(url, "postgres://postgres@", "postgres://visitor_"+database+"@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if f := examined(t, st)["schema"]; f.Level != store.Bad || !strings.Contains(f.Advice, "croft schema postgres") {
		t.Errorf("a role that may not make the schema: %+v", f)
	}
	if n := pg.Query(t, database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'croft'"); n != "0" {
		t.Error("the doctor has made a schema")
	}
}

// TestAStandbyIsToldFromItsPrimary: asynchronous replicas are a warning. A
// standby itself is not fit, and says so before anybody relies on it.
func TestAStandbyIsToldFromItsPrimary(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t)
	open := func(s *testenv.PostgresServer) *postgres.Store {
		st, err := postgres.Open(t.Context(), s.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	primary := open(pg)
	mine := claim("standby/key", "ann")
	must(t, primary, mine)
	standby := open(pg.Standby(t))
	if f := examined(t, primary)["tier"]; f.Level != store.Warn || !strings.Contains(f.Seen, "1 replicas") {
		t.Errorf("a primary that is followed asynchronously: %+v", f)
	}
	seen := examined(t, standby)
	if f := seen["tier"]; f.Level != store.Bad {
		t.Errorf("a standby: %+v", f)
	}
	if f := seen["notifications"]; f.Level != store.Warn {
		t.Errorf("notifications on a standby: %+v", f)
	}
	if a := one(t.Context(), standby, then("renew", mine)); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "primary") {
		t.Errorf("a renewal sent to a standby: %v; want unknown, and where to go", a.Err)
	}
	if rec, err := standby.Get(t.Context(), mine.Key); err != nil || rec.Grant != mine.Secret.Grant() {
		t.Errorf("reading from a standby: %+v, %v", rec, err)
	}
}
