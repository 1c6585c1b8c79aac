package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// TestCallersThatWaitForTheFileAreAnsweredTogether locks the file. Callers that
// ask at the same time wait once, together, not one after the other. None of
// their requests takes effect later.
func TestCallersThatWaitForTheFileAreAnsweredTogether(t *testing.T) {
	t.Parallel()
	const callers, wait = 160, 500 * time.Millisecond
	file := filepath.Join(memoryDir(t), "croft.db")
	l, err := OpenLedger(t.Context(), file, &Options{LockWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Stats(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	other, err := connections(file, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}

	// One after the other they would need more time than they have.
	ctx, cancel := context.WithTimeout(t.Context(), callers*wait*3/4)
	defer cancel()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			a := l.Apply(ctx, []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "busy"}})[0]
			if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, ErrBusy) {
				t.Errorf("answered with %v, want unknown because the file is busy", a.Err)
			}
		})
	}
	all.Wait()
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if a := l.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "free"}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	stats, err := l.Stats(t.Context(), "")
	if err != nil || len(stats) != 1 || stats[0].Queue != "free" || stats[0].Ready != 1 {
		t.Errorf("there is %+v, %v; want one item, added when the file was free", stats, err)
	}
}
