package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestTheFileEndsAsSmallAsItBegan lets thousands of keys come and go. A
// retention later the tables and the disk keep nothing of them. A held key
// stays.
func TestTheFileEndsAsSmallAsItBegan(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{Retention: time.Second, now: clock.Now, SweepEvery: -1})
	defer st.Close()
	held := acquire("held", "ann")
	if a := one(st, held); a.Err != nil {
		t.Fatal(a.Err)
	}
	if _, err := st.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := onDisk(t, file)
	rounds := many(20, 10, 10)
	for n := range rounds {
		var batch []tenure.Request
		for i := range 1000 {
			req := acquire(fmt.Sprintf("many/%d/%d", n, i), "ann")
			batch = append(batch, req, then(tenure.Release, req))
		}
		for _, a := range st.Apply(t.Context(), batch) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	full := onDisk(t, file)
	if n, err := st.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("%d were dropped before their time, %v", n, err)
	}
	clock.Advance(time.Second)
	if n, err := st.Sweep(t.Context()); n != rounds*1000 || err != nil {
		t.Errorf("%d of %d were dropped, %v", n, rounds*1000, err)
	}
	if after := onDisk(t, file); after > before {
		t.Errorf("%d bytes before, %d with all keys, %d after", before, full, after)
	}
	if full < 4*before {
		t.Errorf("the keys took no space worth speaking of: %d bytes before, %d after: the test shows nothing", before, full)
	}
	if a := one(st, then(tenure.Renew, held)); a.Err != nil {
		t.Errorf("renewing what was held all the time: %v", a.Err)
	}
	inOrder(t, file)
}

// onDisk returns the size of the file and its log.
func onDisk(tb testing.TB, file string) int64 {
	tb.Helper()
	var all int64
	for _, name := range []string{file, file + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			tb.Fatal(err)
		}
		all += info.Size()
	}
	return all
}

// TestOldRecordsLeaveByThemselves checks that a store which grants leases
// sweeps now and then.
func TestOldRecordsLeaveByThemselves(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, &Options{Retention: time.Hour, now: clock.Now, SweepEvery: 1})
	defer st.Close()
	for i := range 50 {
		term(t, st, fmt.Sprintf("old/%d", i))
	}
	clock.Advance(time.Hour)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		term(t, st, "new")
		var left int
		if query(t, file, "SELECT count(*) FROM croft_lease WHERE key LIKE 'old/%'", &left); left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d are still there", left)
		}
	}
}
