package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestAHostileRoleHasNothingRunByOthers: a role that may create in a schema on
// the superuser's search_path plants functions and operators there, under every
// name that Croft uses. Each of them counts its calls and fails. A superuser
// then does all that the store, the guard and the ledger can do.
func TestAHostileRoleHasNothingRunByOthers(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	own := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, own).Path, "/")
	mallory := "mallory_" + database
	pg.Query(t, database, "CREATE ROLE "+mallory+" LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO "+mallory)
	attacker := pool(t, strings.Replace(own, "postgres://postgres@", "postgres://"+mallory+"@", 1)+"&search_path=pg_catalog&pool_max_conns=1")
	defer attacker.Close()
	watcher := pool(t, own+"&search_path=pg_catalog&pool_max_conns=1")
	defer watcher.Close()
	caught := func(when string) {
		t.Helper()
		var n int64
		if err := watcher.QueryRow(t.Context(), "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.caught").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Errorf("%s: what the hostile role planted ran %d times as the superuser", when, n)
		}
	}
	plant(t, attacker, hostileFunctions(t))

	// The hostile schema comes first in the path of the caller's sessions.
	everything(t, "the caller's pool, hostile functions first", pool(t, own+"&search_path=public,pg_catalog&track_functions=all"), "a")
	caught("the caller's pool, hostile functions first")

	// The hostile schema comes after the server's own, as usual. There an
	// operator that fits better wins.
	plant(t, attacker, hostileOperators)
	everything(t, "the caller's pool, hostile operators", pool(t, own+"&track_functions=all"), "b")
	caught("the caller's pool, hostile operators")

	// Sessions that Croft makes itself ignore the path.
	for prefix, path := range map[string]string{"c": "public,pg_catalog", "d": "public"} {
		url := own + "&search_path=" + path
		st, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		l, err := work.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		storeDoes(t, st.(*postgres.Store), prefix)
		ledgerDoes(t, l.(*postgres.Ledger), nil, prefix)
		caught("Croft's own pool with the path " + path)
	}

	// The test has called all functions, except those that the server merges
	// into the calling statement.
	rows, err := watcher.Query(t.Context(), `SELECT p.proname::text FROM pg_proc p LEFT JOIN pg_stat_user_functions s ON s.funcid = p.oid
		WHERE p.pronamespace = 'croft'::regnamespace AND coalesce(s.calls, 0) = 0`)
	if err != nil {
		t.Fatal(err)
	}
	missed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	missed = slices.DeleteFunc(missed, func(name string) bool {
		return slices.Contains([]string{"pack", "short", "now_us", "sound", "version_18", "version_19"}, name)
	})
	if len(missed) > 0 {
		t.Errorf("the test has never called %q", missed)
	}
}

// TestANamedTableMustBeAsCroftMakesIt: an earlier owner may have left code on
// the table. It would run as the superuser who raises the fence there. Once
// that code is removed, the table is used again.
func TestANamedTableMustBeAsCroftMakesIt(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	own := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, own).Path, "/")
	mark := namedMark(t, own, "croft")
	if err := mark(); err != nil {
		t.Errorf("the table as Croft makes it: %v", err)
	}
	for _, left := range []struct{ what, do, undo string }{
		{"a check", "ALTER TABLE croft.fence ADD CONSTRAINT c CHECK (name <> '')", "ALTER TABLE croft.fence DROP CONSTRAINT c"},
		{"a rule", "CREATE RULE r AS ON UPDATE TO croft.fence DO ALSO SELECT 1", "DROP RULE r ON croft.fence"},
		{"policies", "ALTER TABLE croft.fence ENABLE ROW LEVEL SECURITY", "ALTER TABLE croft.fence DISABLE ROW LEVEL SECURITY"},
		{"an index of an expression", "CREATE INDEX i ON croft.fence (lower(name))", "DROP INDEX croft.i"},
		{"an index of some rows", "CREATE INDEX i ON croft.fence (name) WHERE name <> ''", "DROP INDEX croft.i"},
		{"a default", "ALTER TABLE croft.fence ALTER fence_key SET DEFAULT ''", "ALTER TABLE croft.fence ALTER fence_key DROP DEFAULT"},
		{"a generated column", "ALTER TABLE croft.fence ADD g text GENERATED ALWAYS AS (name) STORED", "ALTER TABLE croft.fence DROP g"},
		{"a domain", "CREATE DOMAIN croft.d AS text; ALTER TABLE croft.fence ADD d croft.d", "DROP DOMAIN croft.d CASCADE"},
		{"a child", "CREATE TABLE croft.child () INHERITS (croft.fence)", "DROP TABLE croft.child"},
		{
			"a partition's bounds", "CREATE TABLE croft.p (LIKE croft.fence) PARTITION BY RANGE (name); ALTER TABLE croft.p ATTACH PARTITION croft.fence DEFAULT",
			"ALTER TABLE croft.p DETACH PARTITION croft.fence; DROP TABLE croft.p",
		},
		{"a view in its place", "ALTER TABLE croft.fence RENAME TO kept; CREATE VIEW croft.fence AS SELECT * FROM croft.kept", "DROP VIEW croft.fence; ALTER TABLE croft.kept RENAME TO fence"},
	} {
		pg.Query(t, database, left.do)
		if err := mark(); !errors.Is(err, postgres.ErrCode) {
			t.Errorf("a table with %s: %v; want it refused", left.what, err)
		}
		pg.Query(t, database, left.undo)
		if err := mark(); err != nil {
			t.Errorf("a table without %s again: %v", left.what, err)
		}
	}
}

// TestTheSchemaPublicBelongsToTheOwnerOfTheDatabase: the catalog names a role
// of its own, which no user has.
func TestTheSchemaPublicBelongsToTheOwnerOfTheDatabase(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	own := pg.Database(t)
	database := strings.TrimPrefix(mustParse(t, own).Path, "/")
	mark := namedMark(t, own, "public")
	if err := mark(); err != nil {
		t.Errorf("the owner of the database, a superuser: %v", err)
	}
	ann := "ann_" + database
	pg.Query(t, database, "CREATE ROLE "+ann+"; ALTER DATABASE "+database+" OWNER TO "+ann)
	if err := mark(); !errors.Is(err, postgres.ErrCode) || !strings.Contains(err.Error(), ann) {
		t.Errorf("a database of another role's: %v; want it refused, with the role", err)
	}
}

// namedMark makes a fence row in a schema of a database. It returns a function
// that reads the row's mark as an operator's act does.
func namedMark(t *testing.T, database, schema string) func() error {
	p := pool(t, database)
	defer p.Close()
	g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "row"}, &postgres.GuardOptions{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Raise(t.Context(), stampOf(10, 1)); err != nil {
		t.Fatal(err)
	}
	allowed, err := guard.Allow(database + "&schema=" + schema)
	if err != nil {
		t.Fatal(err)
	}
	named, err := allowed.Open(t.Context(), g.Target())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { named.Close() })
	return func() error { _, err := named.Mark(t.Context()); return err }
}

// TestTheSessionsOfAPoolerStayAsTheyAre: the pooler's next client may get the
// same session. A pooler gives its clients a process number of its own.
func TestTheSessionsOfAPoolerStayAsTheyAre(t *testing.T) {
	t.Parallel()
	pg := testenv.Postgres(t)
	url := pg.Database(t) + "&search_path=public"
	for address, want := range map[string]string{pg.Addr(): "pg_catalog, pg_temp", renumbering(t, pg.Addr()): "public"} {
		p, err := postgres.Connect(t.Context(), strings.Replace(url, pg.Addr(), address, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var path string
		if err := p.QueryRow(t.Context(), "SHOW search_path").Scan(&path); err != nil || path != want {
			t.Errorf("the path is %q, %v; want %q", path, err, want)
		}
	}
}

// renumbering forwards connections to a server. It tells clients another number
// of the server process, as a pooler does.
func renumbering(t *testing.T, server string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				return
			}
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
			go func() {
				defer near.Close()
				for {
					head := make([]byte, 5)
					if _, err := io.ReadFull(far, head); err != nil {
						return
					}
					body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
					if _, err := io.ReadFull(far, body); err != nil {
						return
					}
					if head[0] == 'K' { // the process number, and the key that cancels
						binary.BigEndian.PutUint32(body, 4711<<8)
					}
					if _, err := near.Write(slices.Concat(head, body)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// plant runs the attacker's statements.
func plant(t *testing.T, attacker *pgxpool.Pool, text string) {
	t.Helper()
	if _, err := attacker.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// hostileFunctions makes, in public, a function for each of the server's
// functions that occur in Croft's texts, with the same arguments. If the
// server's function takes arguments of any type, the hostile one fits Croft's
// call better.
func hostileFunctions(t *testing.T) string {
	names := map[string]bool{}
	for _, text := range append(slices.Collect(maps.Values(postgres.Statements())), postgres.Schema()) {
		for _, m := range regexp.MustCompile(`\b([a-z_]+)\(`).FindAllStringSubmatch(text, -1) {
			names["'"+m[1]+"'"] = true
		}
	}
	var list []string
	for name := range names {
		list = append(list, name)
	}
	if len(list) < 40 {
		t.Fatalf("only %d names of functions were found", len(list))
	}
	slices.Sort(list)
	pack := "text, bigint, text, text, text, text, text, text, text, text, bigint, bigint, bigint, bigint, bigint, text, text, text, text, text, text, bigint, boolean"
	return `
CREATE SEQUENCE public.caught;
GRANT ALL ON public.caught TO PUBLIC;
DO $do$
DECLARE
    f record;
    trap text := 'BEGIN PERFORM pg_catalog.nextval(''public.caught''); RAISE EXCEPTION ''a hostile function runs as %%'', current_user; END';
BEGIN
    FOR f IN SELECT p.proname AS name, pg_get_function_identity_arguments(p.oid) AS args, pg_get_function_result(p.oid) AS result
        FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname = ANY (ARRAY[` + strings.Join(list, ", ") + `])
        UNION ALL VALUES ('concat_ws', '` + pack + `', 'text'),
            ('concat_ws', 'text, integer, text, bigint, text, text', 'text'), ('concat_ws', 'text, integer, text', 'text'),
            ('concat_ws', 'text, integer, text, bigint, bigint, bigint, bigint, text, text', 'text'),
            ('json_build_object', 'text, text, text, bigint, text, text', 'json'), ('json_build_object', 'text, uuid, text, bigint, text, bigint', 'json'),
            ('to_jsonb', 'text', 'jsonb'), ('cardinality', 'integer[]', 'integer'), ('cardinality', 'text[]', 'integer'),
            ('array_append', 'text[], text', 'text[]'), ('unnest', 'text[]', 'SETOF text')
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.name, f.args, f.result, format(trap));
        EXCEPTION WHEN OTHERS THEN
            NULL; -- no function in this language can take such arguments
        END;
    END LOOP;
    IF (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace) < 60 THEN
        RAISE EXCEPTION 'too few traps';
    END IF;
END
$do$;
CREATE FUNCTION public.springs(bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RETURN pg_catalog.nextval('public.caught'); END$$;
CREATE FUNCTION public.springs(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RETURN pg_catalog.nextval('public.caught'); END$$;
CREATE AGGREGATE public.count(*) (SFUNC = public.springs, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE public.min(bigint) (SFUNC = public.springs, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE public.max(bigint) (SFUNC = public.springs, STYPE = bigint, INITCOND = '0');
`
}

// hostileOperators makes, in public, every operator that Croft uses, for every
// pair of types that Croft has. Some of these the server does not have.
const hostileOperators = `
DO $do$
DECLARE
    l text; r text; op text;
    types text[] := ARRAY['text', 'smallint', 'integer', 'bigint', 'numeric', 'double precision', 'boolean', 'uuid', 'jsonb', 'timestamptz', 'interval', 'oid', 'regclass', 'name', '"char"', 'text[]', 'integer[]'];
BEGIN
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION public.compares(%s, %s) RETURNS boolean LANGUAGE plpgsql AS %L', l, r,
                'BEGIN PERFORM pg_catalog.nextval(''public.caught''); RAISE EXCEPTION ''a hostile operator runs''; END');
            EXECUTE format('CREATE FUNCTION public.reckons(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', l, r, l,
                'BEGIN PERFORM pg_catalog.nextval(''public.caught''); RAISE EXCEPTION ''a hostile operator runs''; END');
            FOREACH op IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '~~', '@>'] LOOP
                EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.compares, LEFTARG = %s, RIGHTARG = %s)', op, l, r);
            END LOOP;
            FOREACH op IN ARRAY ARRAY['+', '-', '*', '/', '%', '||'] LOOP
                EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.reckons, LEFTARG = %s, RIGHTARG = %s)', op, l, r);
            END LOOP;
        END LOOP;
    END LOOP;
END
$do$;
`

// everything does all that the caller can do with a pool of its own.
func everything(t *testing.T, how string, p *pgxpool.Pool, prefix string) {
	t.Helper()
	defer p.Close()
	st := postgres.New(p, &postgres.Options{SweepEvery: -1})
	defer st.Close()
	storeDoes(t, st, prefix)
	g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "row " + prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Raise(t.Context(), stampOf(10, 1)); err != nil {
		t.Errorf("%s: Raise: %v", how, err)
	}
	if _, err := g.Rekey(t.Context(), "other", "ann", "why"); err != nil {
		t.Errorf("%s: Rekey: %v", how, err)
	}
	if _, err := g.Rekeyed(t.Context()); err != nil {
		t.Errorf("%s: Rekeyed: %v", how, err)
	}
	postgres.Named(g)
	if _, err := g.Mark(t.Context()); err != nil {
		t.Errorf("%s: Mark of a named guard: %v", how, err)
	}
	l := postgres.NewLedger(p, nil)
	defer l.Close()
	ledgerDoes(t, l, p, prefix)
}

// storeDoes calls everything that a store can do.
func storeDoes(t *testing.T, st *postgres.Store, prefix string) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, err error, allowed ...error) {
		t.Helper()
		if err != nil && !slices.ContainsFunc(allowed, func(one error) bool { return errors.Is(err, one) }) {
			t.Errorf("%s: %v", what, err)
		}
	}
	key := func(name string) string { return prefix + "/" + name }
	mine := claim(key("lone"), "ann")
	mine.Guards = []string{"file:///x"}
	check("acquire", one(ctx, st, mine).Err)
	check("acquire what another holds", one(ctx, st, claim(key("lone"), "bob")).Err, tenure.ErrHeld)
	check("release", one(ctx, st, then(tenure.Release, mine)).Err)
	again := claim(key("lone"), "bob")
	check("acquire what was given back", one(ctx, st, again).Err)
	check("renew", one(ctx, st, then(tenure.Renew, again)).Err)
	_, err := st.Watch(ctx, key("lone"))
	check("watch", err)
	_, err = st.Acts(ctx)
	check("acts", err)
	check("acquire while others wait", one(ctx, st, claim(key("lone"), "cy")).Err, tenure.ErrHeld)
	check("release to who waits", one(ctx, st, then(tenure.Release, again)).Err)
	periodic := claim(key("periodic"), "ann")
	periodic.Every = time.Hour
	check("acquire once per period", one(ctx, st, periodic).Err)
	check("release after success", one(ctx, st, then(tenure.Release, periodic)).Err)
	periodic.Secret = tenure.NewSecret()
	check("acquire again in the period", one(ctx, st, periodic).Err, tenure.ErrHeld)
	held := claim(key("held"), "ann")
	check("acquire", one(ctx, st, held).Err)
	batch := []tenure.Request{
		claim(key("1"), "ann"), claim(key("2"), "ann"), then(tenure.Renew, held), then(tenure.Report, held),
		{Verb: tenure.Takeover, Key: key("held"), Secret: tenure.NewSecret(), Owner: "op", Actor: "op", Note: "why", TTL: time.Minute},
		{Verb: tenure.Reserve, Key: key("1"), Secret: tenure.NewSecret(), Owner: "bob", Actor: "op", Note: "why", TTL: time.Minute},
		{Verb: tenure.Revoke, Key: key("2"), Secret: tenure.NewSecret(), Actor: "op", Note: "why"},
		then(tenure.Release, held),
	}
	batch[3].Progress = "half"
	for i, a := range st.Apply(ctx, batch) {
		check(string(batch[i].Verb)+" in a batch", a.Err, tenure.ErrNotOwned)
	}
	rec, err := st.Get(ctx, key("held"))
	check("get", err)
	if len(rec.History) != 2 {
		t.Errorf("the history of %s: %+v", key("held"), rec.History)
	}
	for _, err := range st.List(ctx, prefix+"/") {
		check("list", err)
	}
	_, err = st.Now(ctx)
	check("now", err)
	_, err = st.Sweep(ctx)
	check("sweep", err)
	_, err = st.Examine(ctx)
	check("examine", err)
}

// ledgerDoes calls everything that a ledger can do. With p it also makes the
// calls that only a leaving client makes.
// partsDo uses rules and partitions, and what older clients use.
func partsDo(t *testing.T, l *postgres.Ledger, p *pgxpool.Pool, queue string) {
	t.Helper()
	ctx := t.Context()
	for _, c := range []work.RuleChange{
		{Verb: work.SetLimit, Queue: queue, Limit: work.Limit{Running: 9, Starts: 9, Interval: time.Minute}, Actor: "a", Note: "n"},
		{Verb: work.SetLimit, Queue: queue, Partition: work.EachPartition, Limit: work.Limit{Running: 2}, Actor: "a", Note: "n"},
	} {
		if _, err := l.Govern(ctx, c); err != nil {
			t.Errorf("limit: %v", err)
		}
	}
	for _, name := range []string{"", "one", "one", "one", "two"} {
		if a := l.Apply(ctx, []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: queue, Partition: name}})[0]; a.Err != nil {
			t.Errorf("add to a partition: %v", a.Err)
		}
	}
	grab := work.Claim{Queues: []string{queue}, Limit: 9, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	items, err := l.Claim(ctx, grab)
	if err != nil || len(items) != 4 {
		t.Errorf("a claim got %d items, want 4, and %v", len(items), err)
	}
	for i, verb := range []work.Verb{work.Release, work.Complete} {
		if a := l.Apply(ctx, []work.Request{{Verb: verb, ID: items[i].ID, Token: items[i].Record.Token, Secret: grab.Secret}})[0]; a.Err != nil {
			t.Errorf("%s: %v", verb, a.Err)
		}
	}
	for _, err := range l.Rules(ctx, work.RuleQuery{}) {
		if err != nil {
			t.Errorf("rules: %v", err)
		}
	}
	if p == nil {
		return
	}
	if _, err := p.Exec(ctx, `INSERT INTO croft.item (id, queue, partition, state, priority, tries, ready, created)
		VALUES (gen_random_uuid(), $1, NULL, 'waiting', 0, 1, 1, 1)`, "old-"+queue); err != nil {
		t.Errorf("an older client adds: %v", err)
	}
	if _, err := p.Exec(ctx, `SELECT croft.claim_v1(NULL, '["x"]', 1, gen_random_uuid(), 'old', '', 60000000, false, false)`); err != nil {
		t.Errorf("an older client claims: %v", err)
	}
}

func ledgerDoes(t *testing.T, l *postgres.Ledger, p *pgxpool.Pool, prefix string) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	queue := "queue-" + prefix
	hints, stop := context.WithCancel(ctx)
	defer stop()
	_, err := l.Wake(hints, work.Wanted{Queues: []string{queue}, Effects: true})
	check("wake", err)
	add := func(n int) (all []work.Request) {
		for i := range n {
			all = append(all, work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue, Payload: []byte("x"), Unique: fmt.Sprint(tenure.NewSecret(), i)})
		}
		return all
	}
	for _, a := range l.Apply(ctx, add(4)) {
		check("add", a.Err)
	}
	partsDo(t, l, p, "parts-"+prefix)
	grab := work.Claim{Queues: []string{queue}, Limit: 3, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	items, err := l.Claim(ctx, grab)
	check("claim", err)
	grab.Again = true
	_, err = l.Claim(ctx, grab)
	check("claim again", err)
	if len(items) != 3 {
		t.Fatalf("claimed %d items", len(items))
	}
	of := func(verb work.Verb, i int) work.Request {
		return work.Request{Verb: verb, ID: items[i].ID, Token: items[i].Record.Token, Secret: grab.Secret}
	}
	done, saved, given, failed := of(work.Complete, 0), of(work.Checkpoint, 1), of(work.Release, 1), of(work.Fail, 2)
	done.Effects, saved.State, failed.Error = []work.Emission{{Name: "mail", To: "mail", Body: []byte("x")}}, []byte("x"), "why"
	stale := of(work.Complete, 1)
	stale.Token--
	for _, requests := range [][]work.Request{{of(work.Heartbeat, 0)}, {done, saved, failed}, {given}, {done}} {
		for _, a := range l.Apply(ctx, requests) {
			check("apply", a.Err)
		}
	}
	if a := l.Apply(ctx, []work.Request{stale})[0]; !errors.Is(a.Err, fence.ErrStale) && !errors.Is(a.Err, tenure.ErrNotOwned) {
		t.Errorf("a stale completion: %v", a.Err)
	}
	next := work.Claim{Queues: []string{queue}, Limit: 9, Secret: tenure.NewSecret(), Owner: "bob", TTL: time.Minute}
	_, err = l.Claim(ctx, next) // with a past, and fewer than asked for
	check("claim", err)
	stamp := stampOf(fence.Token(time.Now().UnixMicro()), 1)
	effects, err := l.Take(ctx, work.Taking{Stamp: stamp, To: []string{"mail"}, Limit: 5, Hold: time.Minute})
	check("take", err)
	for _, e := range effects {
		check("settle", l.Settle(ctx, []work.Settlement{{Effect: e.EffectID, Attempt: e.Attempts, State: work.Sent, Stamp: stamp}})[0].Err)
	}
	_, err = l.Get(ctx, items[0].ID)
	check("get", err)
	for _, q := range []work.Query{{Queue: queue}, {States: []work.State{work.Waiting, work.Dead}}} {
		for _, err := range l.List(ctx, q) {
			check("list", err)
		}
	}
	for _, q := range []work.EffectQuery{{Queue: queue}, {States: []work.EffectState{work.Unknown}}} {
		for _, err := range l.Effects(ctx, q) {
			check("effects", err)
		}
	}
	for _, err := range l.Refusals(ctx, work.RefusalQuery{Queue: queue}) {
		check("refusals", err)
	}
	_, err = l.Stats(ctx, queue)
	check("stats", err)
	_, err = l.Prune(ctx, work.Retention{Done: time.Millisecond, Dead: time.Millisecond, Refusals: time.Millisecond}, 10)
	check("prune", err)
	_, err = l.Now(ctx)
	check("now", err)
	if p != nil {
		_, err = p.Exec(ctx, "SELECT croft.wait_v1(1000, 'x', ARRAY[$1], 1000), croft.in_line_v1($1, 'x', 1000)", prefix+"/lone")
		check("a client that waits", err)
	}
}

// TestNothingIsGrantedOverADamagedRow: every request on it, alone or in a
// batch, has an unknown outcome. The error says what to do, and the row stays
// as it is. Requests on other keys and sweeps go on.
func TestNothingIsGrantedOverADamagedRow(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{SweepEvery: -1})
	for n, damage := range []string{
		"state = 'nonsense'", "token = -5", "token = 0", "grant_id = 'x'", "cause = ''", "ended = 'never'", "ttl = -1, state = 'held', ended = '', deadline = 0",
		"every = -1", "state = 'held', ended = 'released'", "state = 'free', ended = '', cause = 'first'",
		"succeeded = 9223372036854775807", "succeeded = 1, every = 9223372036854775807",
		"succeeded = 1, every = 3600000000, grid = -9223372036854775808", "succeeded = -70000000000000000, every = 3600000000, grid = 1",
		"checkpoint = 'no base64'", "checkpoint = 'YQ='", "checkpoint = repeat('YWFh', 343)",
	} {
		for _, free := range []bool{true, false} {
			mine := claim(fmt.Sprintf("damaged/%d/%t", n, free), "ann")
			must(t, st, mine)
			if free {
				must(t, st, then(tenure.Release, mine))
			} else {
				exec(t, "UPDATE "+name+".lease SET deadline = acquired WHERE key = $1", mine.Key) // it has expired
			}
			exec(t, "UPDATE "+name+".lease SET "+damage+" WHERE key = $1", mine.Key)
			row := func() (text string) {
				if err := shared(t).QueryRow(t.Context(), "SELECT l::text FROM "+name+".lease l WHERE l.key = $1", mine.Key).Scan(&text); err != nil {
					t.Fatal(err)
				}
				return text
			}
			before := row()
			other, periodic := claim(mine.Key, "bob"), claim(mine.Key, "cy")
			periodic.Every = time.Hour
			asked := [][]tenure.Request{
				{other},
				{claim(mine.Key, "cy"), claim(mine.Key+"/beside", "cy")},
				{periodic, claim(mine.Key+"/too", "cy")},
				{{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", Actor: "op", Note: "why", TTL: time.Minute}},
				{{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "op", Note: "why"}},
			}
			for _, requests := range asked {
				answers := st.Apply(t.Context(), requests)
				if a := answers[0]; !errors.Is(a.Err, postgres.ErrDamaged) || !errors.Is(a.Err, store.ErrUnknown) {
					t.Errorf("%s of a row with %s, free %t: %v, %+v; want ErrDamaged", requests[0].Verb, damage, free, a.Err, a.Record)
				}
				for _, a := range answers[1:] {
					if a.Err != nil {
						t.Errorf("beside a row with %s: %v, want a grant", damage, a.Err)
					}
				}
			}
			if _, err := st.Sweep(t.Context()); err != nil {
				t.Errorf("a sweep over a row with %s: %v", damage, err)
			}
			if after := row(); after != before {
				t.Errorf("a row with %s was changed:\n%s\n%s", damage, before, after)
			}
		}
	}
}

// TestADamagedRowHidesNoOther: a listing has all other keys, on all its pages,
// and ends with an error that names the damaged ones and stays short.
func TestADamagedRowHidesNoOther(t *testing.T) {
	t.Parallel()
	st, name := fresh(t, postgres.Options{SweepEvery: -1})
	first, last := claim("damaged/a", "ann"), claim("damaged/z", "ann")
	must(t, st, first)
	must(t, st, last)
	must(t, st, claim("elsewhere", "ann"))
	keys := func(prefix string) (found []string, failed error) {
		for rec, err := range st.List(t.Context(), prefix) {
			if failed != nil {
				t.Error("the listing goes on after its error")
			}
			if failed = err; err == nil {
				found = append(found, rec.Key)
			}
		}
		return found, failed
	}
	for n, damage := range []string{
		"state = 'nonsense'", "token = 0", "cause = ''", "checkpoint = 'no base64'", "guards = 'no JSON'",
		"owner = E'two\x1ffields'", "every = -1",
	} {
		damaged := claim(fmt.Sprintf("damaged/m/%d", n), "ann")
		must(t, st, damaged)
		exec(t, "UPDATE "+name+".lease SET "+damage+" WHERE key = $1", damaged.Key)
		found, err := keys(damaged.Key)
		if len(found) != 0 || !errors.Is(err, postgres.ErrDamaged) || !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a row with %s: %q, then %v; want ErrDamaged", damage, found, err)
		}
	}
	// More of them than one statement reads.
	exec(t, "INSERT INTO "+name+".lease (SELECT (jsonb_populate_record(l, "+
		"jsonb_build_object('key', 'damaged/p/' || n || repeat('x', 1000), 'state', 'x'))).* "+
		"FROM "+name+".lease l, generate_series(1, 2500) n WHERE l.key = $1)", first.Key)
	found, err := keys("damaged/")
	if !slices.Equal(found, []string{first.Key, last.Key}) || !errors.Is(err, postgres.ErrDamaged) {
		t.Errorf("listed %q, then %v; want the two sound keys, then ErrDamaged", found, err)
	}
	if said := fmt.Sprint(err); len(said) > 8192 || !strings.HasSuffix(said, "more") {
		t.Errorf("an error of %d bytes: %s", len(said), said)
	}
	if found, err := keys("elsewhere"); len(found) != 1 || err != nil {
		t.Errorf("another prefix: %q, %v", found, err)
	}
}
