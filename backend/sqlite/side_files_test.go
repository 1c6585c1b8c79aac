//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// TestALogThatIsTakenAwayEndsTheStore removes the files beside a database in
// use, and another process begins with new ones. The locks of the two do not
// exclude each other any more. So the first process must not write, nor copy
// its old log over the other's data when it is closed. It must say so, and stay
// out for good.
func TestALogThatIsTakenAwayEndsTheStore(t *testing.T) {
	t.Parallel()
	for _, removed := range [][]string{{"-shm"}, {"-wal", "-shm"}} {
		for _, how := range []string{"own", "caller's"} {
			t.Run(fmt.Sprint(how, removed), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(memoryDir(t), "croft.db")
				open(t, file, nil).Close()
				st := open(t, file, nil)
				if how != "own" {
					must(t, st.Close())
					st = New(applicationAt(t, file, "&_pragma=journal_mode(wal)"), nil)
				}
				defer st.Close()
				held := acquire("held", "ann")
				must(t, one(st, held).Err)
				for _, beside := range removed {
					must(t, os.Remove(file+beside))
				}
				c := startChild(t, "take", file)
				c.Expect(t, "ready")
				fmt.Fprintln(c.In, "go")
				c.Expect(t, "answer <nil>")
				st.opened().looked.Store(0)
				for range 2 {
					a := one(st, acquire("k", "ann"))
					if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "start it again") {
						t.Errorf("taking what the child has: %+v, %v", a.Record, a.Err)
					}
				}
				if _, err := Open(t.Context(), file, nil); err == nil || !strings.Contains(err.Error(), "start it again") {
					t.Errorf("opening it once more in this process: %v", err)
				}
				_ = st.Close()
				fmt.Fprintln(c.In, "go")
				if heard := c.Hear(); !strings.Contains(heard, "held by child") {
					t.Errorf("the child asks for what it has, and is told %q", heard)
				}
				startChild(t, "look", file).Expect(t, "ok held child <nil>") // not from here: this process stays out
			})
		}
	}
}

// TestClosingDoesNotCopyAnOldLogBack checks that a store which was idle since
// its log was removed finds out when it is closed.
func TestClosingDoesNotCopyAnOldLogBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	must(t, one(st, acquire("held", "ann")).Err)
	must(t, os.Remove(file+"-shm"))
	c := startChild(t, "take", file)
	c.Expect(t, "ready")
	fmt.Fprintln(c.In, "go")
	c.Expect(t, "answer <nil>")
	must(t, c.In.Close()) // it ends, and copies its log into the file
	_ = c.Cmd.Wait()
	if err := st.Close(); err == nil || !strings.Contains(err.Error(), "-shm") {
		t.Errorf("closing: %v", err)
	}
	startChild(t, "look", file).Expect(t, "ok held child <nil>")
}

// TestALedgerWhoseLogIsTakenAway checks that such a ledger, too, answers
// nothing more.
func TestALedgerWhoseLogIsTakenAway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "work.db")
	l, err := OpenLedger(t.Context(), file, nil)
	must(t, err)
	defer l.Close()
	add := func() error {
		return l.Apply(t.Context(), []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "q"}})[0].Err
	}
	must(t, add())
	must(t, os.Remove(file+"-wal"))
	l.store.opened().looked.Store(0)
	if err := add(); !errors.Is(err, work.ErrUnknown) || !strings.Contains(err.Error(), "start it again") {
		t.Errorf("adding: %v", err)
	}
	if _, err := os.Lstat(file + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a log again: %v", err)
	}
}
