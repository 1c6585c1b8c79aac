package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// LeavePatiently sets how long Close tries to step out of all queues.
func LeavePatiently(s *Store, patience time.Duration) { s.listener.farewell = patience }

// At sets the clock of a store.
func At(now func() time.Time, o *Options) *Options { o.now = now; return o }

// LedgerAt sets the clock of a ledger.
func LedgerAt(now func() time.Time, o *LedgerOptions) *LedgerOptions { o.now = now; return o }

// Statements returns all statements by their names.
func Statements() map[string]string { return queryTexts() }

// Named makes g a guard whose target somebody else wrote down.
func Named(g *Guard) { g.named = true }

// ErrCode is matched when a named guard's table is not trusted.
var ErrCode = errCode

// NewestVersion is the version of the schema that this program makes.
func NewestVersion() int { return newestVersion() }

// Migrations returns the number of steps that make the schema.
func Migrations() int { return len(migrations(DefaultSchema)) }

// Connect returns the pool of a store that is opened by its URL.
func Connect(ctx context.Context, raw string) (*pgxpool.Pool, error) {
	a, err := parse("store", raw)
	if err != nil {
		return nil, err
	}
	return a.connect(ctx)
}

// ExplainStore explains the error of a statement of a store.
func ExplainStore(ctx context.Context, err error) error { return explainStore(ctx, err) }
