package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

// TestNothingGoesOnAfterClose closes a ledger in the middle of a transaction.
// The caller gets ErrClosed, and Close returns when the transaction has ended.
func TestNothingGoesOnAfterClose(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), &Options{LockWait: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	begun, over := make(chan struct{}), make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- l.within(t.Context(), func(ctx context.Context, tx *ledgerTx) error {
			close(begun)
			<-ctx.Done()
			close(over)
			return ctx.Err()
		})
	}()
	<-begun
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
	default:
		t.Error("the ledger is closed, and its transaction goes on")
	}
	if err := <-failed; !errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) {
		t.Errorf("the transaction: %v", err)
	}
	if a := l.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "q"}})[0]; !errors.Is(a.Err, ErrClosed) || !errors.Is(a.Err, work.ErrUnknown) {
		t.Errorf("a request to a closed ledger: %v", a.Err)
	}
}
