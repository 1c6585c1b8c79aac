package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// TestDoneItemsAreNotRead: the reconciler's statements and people's listings
// use indexes without done items.
func TestDoneItemsAreNotRead(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := NewLedger(pool, nil)
	defer func() { _ = l.Close() }()
	if _, err := l.Stats(t.Context(), ""); err != nil { // makes the tables
		t.Fatal(err)
	}
	for _, text := range []string{
		`INSERT INTO croft.item (id, queue, state, priority, tries, ready, created, finished)
		 SELECT gen_random_uuid(), 'q', 'done', 0, 1, n, n, n FROM generate_series(1, 20000) AS n`,
		`INSERT INTO croft.effect (item, generation, name, queue, dest, at_most_once, token, grant_id, owner, state, ready, created)
		 SELECT id, 0, 'mail', 'q', 'mail', false, 1, id, '', CASE WHEN ready % 10 = 0 THEN 'pending' ELSE 'sent' END, ready, created FROM croft.item`,
		"ANALYZE croft.item, croft.effect",
	} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	now := int64(1)
	backlog := []any{now, now, work.MaxCountedDead, work.MaxCountedEffects}
	for _, c := range []struct {
		text, index string
		args        []any
	}{
		{l.sql.workListFew.Text(false), "item_owned", []any{"", maybe([]work.State{work.Running}), "", nil, page}},
		{l.sql.workListFew.Text(false), "item_next", []any{"q", maybe([]work.State{work.Waiting}), "ann", nil, page}},
		{l.sql.workListFew.Text(true), "item_given_up", []any{"", maybe([]work.State{work.Waiting, work.Dead}), "", nil, page}},
		{l.sql.workEffectsOrphaned, "effect_unknown", []any{nil, "", nil, &now, nil, 0, "", page}},
		{l.sql.workBacklog, "item_next", backlog},
		{l.sql.workBacklog, "effect_failed", backlog},
	} {
		rows, err := poolTexts(t.Context(), pool, "EXPLAIN "+c.text, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(rows, "\n"); !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s is not used:\n%s", c.index, plan)
		}
	}
}

// TestATakingUsesItsIndexBeforeTheFirstAnalyze: until then the server has no
// statistics and believes what the size of the table suggests. A dispatcher
// then read the whole outbox for every few effects.
func TestATakingUsesItsIndexBeforeTheFirstAnalyze(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := NewLedger(pool, nil)
	defer func() { _ = l.Close() }()
	if _, err := l.Stats(t.Context(), ""); err != nil { // makes the tables
		t.Fatal(err)
	}
	for _, text := range []string{
		"ALTER TABLE croft.effect SET (autovacuum_enabled = false)",
		`INSERT INTO croft.effect (item, generation, name, queue, dest, at_most_once, token, grant_id, owner, state, ready, created)
		 SELECT gen_random_uuid(), 0, 'x', 'q', 'dest' || n % 10, false, 1, gen_random_uuid(), '', CASE WHEN n % 4 = 0 THEN 'pending' ELSE 'sent' END, n, n
		 FROM generate_series(1, 20000) AS n`,
	} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	stamp := fence.Stamp{Key: "work/dispatcher", Token: 1}
	for index, q := range map[string]work.Taking{
		"effect_due":  {Stamp: stamp, To: []string{"dest2", "dest4"}, Limit: 100},
		"effect_line": {Stamp: stamp, To: []string{"dest2"}, Ordered: true, Limit: 1},
		"effect_open": {Stamp: stamp, Limit: 100},
	} {
		err := l.within(t.Context(), l.lockWait, func(tx *ledgerTx) error {
			if _, err := tx.session.exec(t.Context(), l.sql.workByIndex); err != nil {
				return err
			}
			text, args := l.sql.taking(q, 1_000_000)
			rows, err := tx.session.texts(t.Context(), "EXPLAIN "+text, args...)
			if plan := strings.Join(rows, "\n"); err == nil && (!strings.Contains(plan, index) ||
				strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Filter: (ready") ||
				strings.Contains(plan, "Filter: (dest")) {
				t.Errorf("%s is not used:\n%s", index, plan)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
