package postgres_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// older is a database with the schema of version 10. A hostile role has planted
// functions and operators there. A superuser's statements and the old views
// would run them.
type older struct {
	url, name string
	pg        *testenv.PostgresServer
	held      tenure.Request // by a client of that version
}

func olderSchema(t *testing.T) older {
	t.Helper()
	text, err := os.ReadFile("testdata/version10.sql")
	if err != nil {
		t.Fatal(err)
	}
	pg := testenv.Postgres(t)
	o := older{url: pg.Database(t), pg: pg, held: claim("older/held", "ann")}
	o.name = strings.TrimPrefix(mustParse(t, o.url).Path, "/")
	pg.Query(t, o.name, "CREATE ROLE mallory_"+o.name+"; GRANT CREATE, USAGE ON SCHEMA public TO mallory_"+o.name)
	pg.Query(t, o.name, "SET ROLE mallory_"+o.name+`;
		CREATE SEQUENCE public.caught;
		GRANT ALL ON public.caught TO PUBLIC;
		CREATE FUNCTION public.concat_ws(text, bigint, text, text, text, text, text, text, text, text, bigint, bigint, bigint, bigint, bigint, text, text, text, text, text, bigint, boolean)
		RETURNS text LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.caught')::text $$;
		CREATE FUNCTION public.concat_ws(text, integer, text, bigint, text, text)
		RETURNS text LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.caught')::text $$;
		CREATE FUNCTION public.trap(double precision, integer) RETURNS double precision LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.caught')::double precision $$;
		CREATE OPERATOR public.* (FUNCTION = public.trap, LEFTARG = double precision, RIGHTARG = integer);
		CREATE FUNCTION public.trap(bigint, numeric) RETURNS numeric LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.caught')::numeric $$;
		CREATE OPERATOR public./ (FUNCTION = public.trap, LEFTARG = bigint, RIGHTARG = numeric);`)
	pg.Query(t, o.name, string(text))
	o.oldClient(t, o.held)
	return o
}

// oldClient acquires as a client of version 10 does. Its own search_path is
// safe.
func (o older) oldClient(t *testing.T, q tenure.Request) {
	t.Helper()
	answer := o.pg.Query(t, o.name, "SET search_path = pg_catalog; SELECT croft.acquire_v1(NULL, 1000, 0, '"+q.Key+"', '"+string(q.Secret.Grant())+"', '"+q.Owner+"', '', 60000000, '', '')")
	if !strings.Contains(answer, "done") {
		t.Errorf("an older client acquires %s: %q", q.Key, answer)
	}
}

// TestAnOlderSchemaIsMadeSafeByItsNextUse: the first request of a newer client
// brings the schema up to date before anything planted can run. Leases stay as
// they are, and older clients go on.
func TestAnOlderSchemaIsMadeSafeByItsNextUse(t *testing.T) {
	t.Parallel()
	openStore := func(t *testing.T, o older) *postgres.Store {
		st, err := store.Open(t.Context(), o.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st.(*postgres.Store)
	}
	openPool := func(t *testing.T, o older) *pgxpool.Pool {
		p := pool(t, o.url)
		t.Cleanup(p.Close)
		return p
	}
	for name, first := range map[string]func(*testing.T, older) error{
		"get": func(t *testing.T, o older) error {
			rec, err := openStore(t, o).Get(t.Context(), o.held.Key)
			if rec.Owner != "ann" {
				t.Errorf("the lease of before is %+v", rec)
			}
			return err
		},
		"list": func(t *testing.T, o older) (last error) {
			for _, err := range openStore(t, o).List(t.Context(), "") {
				last = err
			}
			return last
		},
		"acquire": func(t *testing.T, o older) error {
			return one(t.Context(), openStore(t, o), claim("older/new", "bob")).Err
		},
		"release": func(t *testing.T, o older) error {
			return one(t.Context(), openStore(t, o), then(tenure.Release, o.held)).Err
		},
		"renew": func(t *testing.T, o older) error {
			return one(t.Context(), openStore(t, o), then(tenure.Renew, o.held)).Err
		},
		"the caller's pool": func(t *testing.T, o older) error {
			_, err := postgres.New(openPool(t, o), nil).Now(t.Context())
			return err
		},
		"sweep": func(t *testing.T, o older) error { _, err := openStore(t, o).Sweep(t.Context()); return err },
		"add": func(t *testing.T, o older) error {
			l := postgres.NewLedger(openPool(t, o), nil)
			return l.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "older"}})[0].Err
		},
		"claim": func(t *testing.T, o older) error {
			l := postgres.NewLedger(openPool(t, o), nil)
			_, err := l.Claim(t.Context(), work.Claim{Queues: []string{"older"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := olderSchema(t)
			if err := first(t, o); err != nil {
				t.Errorf("the first use: %v", err)
			}
			if n := o.pg.Query(t, o.name, "SELECT count(*) FROM croft.leases"); n == "" {
				t.Error("the view shows nothing")
			}
			o.pg.Query(t, o.name, "SELECT * FROM croft.leases")
			if n := o.pg.Query(t, o.name, "SELECT is_called FROM public.caught"); n != "f" {
				t.Error("something that the hostile role planted ran as the superuser")
			}
			unpinned := o.pg.Query(t, o.name, `SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'croft'::regnamespace
				AND proname NOT IN ('now_us', 'short', 'pack', 'sound', 'version_18', 'version_19') AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)`)
			if unpinned != "" {
				t.Errorf("functions that go by the caller's search_path: %s", unpinned)
			}
			o.oldClient(t, claim("older/later", "cy"))
		})
	}
}

// TestAnUpgradedSchemaIsTheSameAsANewOne: functions and views are the same, to
// the letter.
func TestAnUpgradedSchemaIsTheSameAsANewOne(t *testing.T) {
	t.Parallel()
	o := olderSchema(t)
	now := func(url string) {
		t.Helper()
		p := pool(t, url)
		defer p.Close()
		if _, err := postgres.New(p, nil).Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now(o.url)
	pg := testenv.Postgres(t)
	fresh := pg.Database(t)
	now(fresh)
	const text = `SET search_path = pg_catalog;
		SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'croft'::regnamespace ORDER BY p.oid::regprocedure::text;
		SELECT viewname, definition FROM pg_views WHERE schemaname = 'croft' ORDER BY 1;
		SELECT table_name, column_name, data_type, column_default FROM information_schema.columns WHERE table_schema = 'croft' ORDER BY 1, 2;
		SELECT max(version) FROM croft.migration`
	got, want := o.pg.Query(t, o.name, text), pg.Query(t, strings.TrimPrefix(mustParse(t, fresh).Path, "/"), text)
	if got != want {
		g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("line %d of the upgraded schema is %q, of a new one %q", i+1, g[i], w[i])
			}
		}
		t.Fatalf("the upgraded schema has %d lines, a new one %d", len(g), len(w))
	}
}

// TestStatementsAskForTheirVersion: a statement that did not would run an older
// function, which uses the caller's search_path.
func TestStatementsAskForTheirVersion(t *testing.T) {
	t.Parallel()
	calls := regexp.MustCompile(`[^']\bcroft\.[a-z_0-9]+\(`)
	n := 0
	for name, text := range postgres.Statements() {
		if calls.MatchString(text) {
			n++
			if !strings.Contains(text, "croft.version_19()") {
				t.Errorf("%s calls a function and does not ask for version_19: %s", name, text)
			}
		}
	}
	if n < 11 || postgres.NewestVersion() != 19 {
		t.Errorf("%d statements call functions, and the newest version is %d", n, postgres.NewestVersion())
	}
}

// TestARoleThatMayNotUpgradeSaysWhoCan: the schema is older, and the role may
// only use it.
func TestARoleThatMayNotUpgradeSaysWhoCan(t *testing.T) {
	t.Parallel()
	o := olderSchema(t)
	role := "limited_" + o.name
	o.pg.Query(t, o.name, "CREATE ROLE "+role+" LOGIN; GRANT USAGE ON SCHEMA croft TO "+role+"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA croft TO "+role)
	limited, err := store.Open(t.Context(), strings.Replace(o.url, "postgres://postgres@", "postgres://"+role+"@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	if a := one(t.Context(), limited, claim("older/new", "bob")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "croft ls") {
		t.Errorf("with an older schema, as a role that may not change it: %v; want unknown, and what to do", a.Err)
	}
	owner, err := store.Open(t.Context(), o.url)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	for _, err := range owner.List(t.Context(), "") { // as croft ls does
		if err != nil {
			t.Error(err)
		}
	}
	must(t, limited, claim("older/new", "bob"))
}

// TestTheOwnerMakesChangedFunctionsAgain: a role that may only use the schema
// learns what to do. The owner does what the last lines of the schema's text
// say, and uses the schema once. All leases stay.
func TestTheOwnerMakesChangedFunctionsAgain(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	owner := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, owner).Path, "/")
	role := "limited_" + database
	pg.Query(t, database, postgres.Schema())
	pg.Query(t, database, "CREATE ROLE "+role+" LOGIN")
	_, last, _ := strings.Cut(postgres.Schema(), "\nCOMMIT;\n")
	grants := strings.ReplaceAll(strings.Join(regexp.MustCompile("GRANT .*;").FindAllString(last, -1), ""), "TO app", "TO "+role)
	remake := strings.ReplaceAll(regexp.MustCompile("(?s)BEGIN;.*COMMIT;").FindString(last), "--", "")
	pg.Query(t, database, grants)
	open := func(url string) store.Store {
		t.Helper()
		st, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	limited := open(strings.Replace(owner, "postgres://postgres@", "postgres://"+role+"@", 1))
	mine := claim("changed", "ann")
	before := must(t, limited, mine)
	pg.Query(t, database, "INSERT INTO croft.fence (name) VALUES ('row')")

	renews := "IF known AND r.state = 'held' AND (alive"
	pg.Query(t, database, strings.Replace(functionText(t, "apply_v1"), renews, "IF false AND (alive", 1))
	a := one(t.Context(), limited, then(tenure.Renew, mine))
	if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "croft schema postgres") {
		t.Fatalf("with a changed function: %v; want unknown, and what to do", a.Err)
	}

	p := pool(t, owner)
	defer p.Close()
	if _, err := p.Exec(t.Context(), postgres.Schema()); err == nil {
		t.Error("the whole text can run again, against its own word")
	}

	pg.Query(t, database, remake)
	for _, err := range open(owner).List(t.Context(), "") { // as croft ls does
		if err != nil {
			t.Fatal(err)
		}
	}
	pg.Query(t, database, grants)
	after := must(t, limited, then(tenure.Renew, mine))
	if after.Record.Token != before.Record.Token {
		t.Errorf("the lease had token %d and has %d", before.Record.Token, after.Record.Token)
	}
	if n := pg.Query(t, database, "SELECT count(*) FROM croft.fence"); n != "1" {
		t.Errorf("%s marks are left of 1", n)
	}
}

// TestTheDoctorNamesWhoCanChangeTheFunctions: that is the schema's owner, who
// also brings an older schema up to date.
func TestTheDoctorNamesWhoCanChangeTheFunctions(t *testing.T) {
	t.Parallel()
	o := olderSchema(t)
	st, err := store.Open(t.Context(), o.url)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	f := examined(t, st.(*postgres.Store))["schema"]
	if f.Level != store.Warn || !strings.Contains(f.Seen, "owned by postgres, version 10 of 19") || !strings.Contains(f.Advice, "croft ls") {
		t.Errorf("an older schema: %+v", f)
	}
}
