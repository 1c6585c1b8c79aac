package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/work"
)

func additions(n int, queue string) []work.Request {
	all := make([]work.Request, n)
	for i := range all {
		all[i] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: queue}
	}
	return all
}

// TestACallerThatCommitsForOthersGetsItsOwn fills a transaction with earlier
// requests. The caller that has the turn must go on until its own are done:
// nobody else may come to make the next transaction.
func TestACallerThatCommitsForOthersGetsItsOwn(t *testing.T) {
	t.Parallel()
	l, err := OpenLedger(t.Context(), filepath.Join(memoryDir(t), "work.db"), nil)
	must(t, err)
	defer l.Close()
	full := &batch{requests: additions(mostInTransaction, "full"), answers: make([]work.Answer, mostInTransaction), done: make(chan struct{})}
	for i := range full.requests {
		full.todo = append(full.todo, i)
	}
	l.queued = append(l.queued, full) // of a caller that does not wait for the turn yet
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if a := l.Apply(ctx, additions(1, "last"))[0]; a.Err != nil {
		t.Errorf("the last: %v", a.Err)
	}
	select {
	case <-full.done:
		must(t, full.err)
	default:
		t.Error("the first was not carried out")
	}
}

// held keeps a file locked until the returned function is called.
func heldBy(t *testing.T, file string) (release func()) {
	t.Helper()
	db, err := connections(file, testenv.Patience)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	must(t, err)
	_, err = conn.ExecContext(t.Context(), sqlBegin)
	must(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), sqlRollback)
		must(t, errors.Join(err, conn.Close(), db.Close()))
	}
}

// TestAWriteToALedgersLostFileIsUnknown moves the file away while the
// ledger waits for the lock. Its connection may be just opening the file, or
// have had it open for long.
func TestAWriteToALedgersLostFileIsUnknown(t *testing.T) {
	t.Parallel()
	for _, opened := range []bool{false, true} {
		file := filepath.Join(memoryDir(t), "work.db")
		l, err := OpenLedger(t.Context(), file, &Options{LockWait: testenv.Patience})
		must(t, err)
		defer l.Close()
		if opened {
			must(t, l.Apply(t.Context(), additions(1, "q"))[0].Err)
		}
		release := heldBy(t, file)
		answer := make(chan work.Answer, 1)
		go func() { answer <- l.Apply(t.Context(), additions(1, "q"))[0] }()
		testenv.Eventually(t, "it waits for the file", func() error {
			if l.store.opened().db.Stats().InUse < 2 {
				return errors.New("it does not")
			}
			return nil
		})
		for _, suffix := range []string{"", "-wal", "-shm"} {
			must(t, os.Rename(file+suffix, file+".old"+suffix))
		}
		release()
		if a := <-answer; !errors.Is(a.Err, work.ErrUnknown) {
			t.Errorf("opened before %t: adding to a file that nobody sees: %+v", opened, a)
		}
		if a := l.Apply(t.Context(), additions(1, "q"))[0]; a.Err != nil {
			t.Errorf("opened before %t: adding to what is there now: %v", opened, a.Err)
		}
	}
}

// TestAFaultOfAFileThatIsGoneIsExplained checks errors that SQLite gives for a
// moved file, such as an I/O error. The user needs to know that the file was
// moved.
func TestAFaultOfAFileThatIsGoneIsExplained(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "work.db")
	l, err := OpenLedger(t.Context(), file, nil)
	must(t, err)
	defer l.Close()
	b := l.store.opened()
	fault := coded(codes.SQLITE_IOERR_FSTAT)
	if err := b.explain(t.Context(), fault); !errors.Is(err, fault) || strings.Contains(err.Error(), "moved or removed") {
		t.Errorf("the file is where it was: %v", err)
	}
	must(t, os.Rename(file, file+".old"))
	if err := b.explain(t.Context(), fault); !errors.Is(err, fault) || !strings.Contains(err.Error(), "moved or removed") {
		t.Errorf("the file is gone: %v", err)
	}
	must(t, os.Rename(file+".old", file))
}

// coded is an error of SQLite with this code.
type coded int

func (c coded) Error() string { return "some fault" }
func (c coded) Code() int     { return int(c) }

// TestRequestsAreTheCallersAgain checks that a caller may change its requests
// when Apply has returned, even if the transaction goes on.
func TestRequestsAreTheCallersAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "work.db")
	l, err := OpenLedger(t.Context(), file, &Options{LockWait: testenv.Patience})
	must(t, err)
	defer l.Close()
	release := heldBy(t, file)
	mine := additions(1, "q")
	id := mine[0].ID
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan work.Answer, 1)
	go func() { left <- l.Apply(ctx, mine)[0] }()
	testenv.Eventually(t, "it waits for the file", func() error {
		if l.store.opened().db.Stats().InUse < 2 {
			return errors.New("it does not")
		}
		return nil
	})
	cancel()
	if a := <-left; !errors.Is(a.Err, context.Canceled) {
		t.Fatalf("it was cancelled, and says %v", a.Err)
	}
	mine[0] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: "another"}
	release()
	wait, stop := context.WithTimeout(t.Context(), testenv.Patience)
	defer stop()
	for { // the transaction goes on to its end
		it, err := l.Get(wait, id)
		if err == nil {
			if it.Queue != "q" {
				t.Errorf("it is in queue %q", it.Queue)
			}
			break
		}
		if missing := (*work.NotFoundError)(nil); !errors.As(err, &missing) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if stats, err := l.Stats(t.Context(), "another"); err != nil || len(stats) > 0 {
		t.Errorf("what the caller has made of its request since was carried out: %+v, %v", stats, err)
	}
}
