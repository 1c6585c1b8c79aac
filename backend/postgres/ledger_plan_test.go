package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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
		 SELECT id, 0, 'mail', 'q', 'mail', false, 1, id, '', 'sent', ready, created FROM croft.item`,
		"ANALYZE croft.item, croft.effect",
	} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	now := int64(1)
	for _, c := range []struct {
		text, index string
		args        []any
	}{
		{l.sql.workListFew.Text(false), "item_owned", []any{"", maybe([]work.State{work.Running}), "", nil, page}},
		{l.sql.workListFew.Text(false), "item_next", []any{"q", maybe([]work.State{work.Waiting}), "ann", nil, page}},
		{l.sql.workListFew.Text(true), "item_given_up", []any{"", maybe([]work.State{work.Waiting, work.Dead}), "", nil, page}},
		{l.sql.workEffectsOrphaned, "effect_open", []any{nil, "", nil, &now, nil, 0, "", page}},
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
