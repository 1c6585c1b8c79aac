package dir

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/tenure"
)

// census counts the files and folders in a directory, at all levels.
func census(tb testing.TB, root string) (files, folders int) {
	tb.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders++
		} else if err == nil {
			files++
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files, folders
}

// TestNothingOutlivesItsRetention: after many keys the directory is as it was
// before the first. Only the shards stay, at most 256 of them.
func TestNothingOutlivesItsRetention(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	files, folders := census(t, p.root)
	keys := many(2000, 600, 600)
	var requests, ends []tenure.Request
	for i := range keys {
		requests = append(requests, acquire(fmt.Sprintf("tenant-%d/job-%d", i%10, i), "ann"))
		ends = append(ends, then(tenure.Release, requests[i]))
	}
	for _, batch := range [][]tenure.Request{requests, ends[:keys/2]} { // the other half is left to expire
		for _, a := range p.Apply(t.Context(), batch) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	p.tidy.done.Wait()
	p.clock.Advance(retention / 2)
	if n, err := p.Sweep(t.Context()); n != 0 || err != nil {
		t.Fatalf("half a retention later a sweep drops %d, %v", n, err)
	}
	p.clock.Advance(retention)
	if n, err := p.Sweep(t.Context()); n != keys || err != nil {
		t.Fatalf("a sweep drops %d of %d, %v", n, keys, err)
	}
	_ = os.Remove(filepath.Join(p.reg.tmp, stampName))
	shards, err := p.reg.shards()
	if err != nil {
		t.Fatal(err)
	}
	if f, d := census(t, p.root); f != files || d-len(shards) != folders {
		t.Errorf("%d files and, beside %d shards, %d folders are left, there were %d and %d before", f, len(shards), d-len(shards), files, folders)
	}
}

// TestAReleaseTidiesNowAndThen: no caller needs Sweep. All handles together
// tidy once in an eighth of the retention.
func TestAReleaseTidiesNowAndThen(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	release := func(st *Store, key string) {
		t.Helper()
		req := acquire(key, "ann")
		for _, req := range []tenure.Request{req, then(tenure.Release, req)} {
			if a := one(st, req); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		st.tidy.done.Wait()
	}
	known := func(key string) bool { return !p.get(key).IsZero() }

	release(p.Store, "old")
	p.clock.Advance(retention + time.Hour)
	release(p.Store, "new")
	if known("old") || !known("new") {
		t.Fatalf("a retention later: old is known: %t, new: %t", known("old"), known("new"))
	}
	other := p.another(nil)
	release(p.Store, "third")
	p.clock.Advance(retention - retention/8 + time.Minute) // "new" is younger than a retention; the next piece is due
	release(other, "fourth")
	p.clock.Advance(retention/8 + time.Minute)
	release(p.Store, "fifth") // now "new" is droppable, and a piece is due again
	if known("new") {
		t.Error("what has not mattered for a retention is still known")
	}
	p.clock.Advance(time.Minute)
	stamp, err := os.ReadFile(filepath.Join(p.reg.tmp, stampName))
	if err != nil {
		t.Fatal(err)
	}
	release(other, "sixth")
	if again, err := os.ReadFile(filepath.Join(p.reg.tmp, stampName)); err != nil || string(again) != string(stamp) {
		t.Errorf("a handle tidied although another just had: %s, then %s (%v)", stamp, again, err)
	}
	// A stamp from a clock that was far ahead does not stop tidying.
	p.clock.Advance(-10 * retention)
	release(p.another(nil), "seventh")
	if again, err := os.ReadFile(filepath.Join(p.reg.tmp, stampName)); err != nil || string(again) == string(stamp) {
		t.Errorf("nobody tidies until the clock has caught up with %s (%v)", stamp, err)
	}
}

// TestTidyingThatRunsOutOfTimeGoesOnLater: the next piece begins where the last
// one stopped.
func TestTidyingThatRunsOutOfTimeGoesOnLater(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	p.tidy.close() // the test calls piece itself
	const keys = 50
	for i := range keys {
		p.must(acquire(fmt.Sprintf("tidy/%d", i), "ann"))
	}
	p.clock.Advance(2 * retention)
	slow := &tidying{reg: p.reg, retention: retention}
	left := func() (n int) {
		for range p.List(t.Context(), "") {
			n++
		}
		return n
	}
	for rounds := 0; left() > 0; rounds++ {
		if rounds > keys {
			t.Fatalf("%d keys are left after %d rounds", left(), rounds)
		}
		before := left()
		ctx, cancel := context.WithCancel(t.Context())
		drops := 0
		p.reg.fs.FS = &fsys.Faulty{FS: unsynced{fsys.OS{}}, After: func(s fsys.Step) error {
			if s.Op == "rename" && strings.Contains(s.Path, "dropped") {
				if drops++; drops == 5 {
					cancel()
				}
			}
			return nil
		}}
		due := slow.piece(ctx, p.clock.Now())
		p.reg.fs.FS = unsynced{fsys.OS{}}
		if now := left(); before-now > 5 || before-now < min(before, 5) {
			t.Fatalf("one piece dropped %d of %d", before-now, before)
		}
		if wait := due.Sub(p.clock.Now()); left() > 0 && wait != tidyAgain {
			t.Fatalf("the next piece is due in %s", wait)
		}
		p.clock.Advance(tidyAgain)
	}
}

// TestLeftoversOfStoppedProcessesAreRemoved: but younger files stay, because a
// process may still be using them.
func TestLeftoversOfStoppedProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	young, old := time.Now().Add(-leftoverAge/2), time.Now().Add(-2*leftoverAge)
	put := func(at time.Time) (names []string) {
		file := p.reg.temp("new")
		folder := p.reg.temp("born")
		inner := filepath.Join(folder, newLife(at))
		for _, dir := range []string{folder, inner} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{file, filepath.Join(inner, versionName(1))} {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{file, folder} {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		return []string{filepath.Base(file), filepath.Base(folder)}
	}
	keep := put(young)
	put(old)
	if _, err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := p.reg.fs.Names(p.reg.tmp)
	if err != nil || len(names) != len(keep) {
		t.Errorf("left are %v (%v), want %v", names, err, keep)
	}
}

// TestAStagedFileTakenForALeftover: a process that was stopped for hours finds
// its staged file, or folder, gone. It reads the key again.
func TestAStagedFileTakenForALeftover(t *testing.T) {
	t.Parallel()
	for op, prepare := range map[string]func(*fixture){
		"link":   func(p *fixture) { p.must(acquire("k", "bob")); p.clock.Advance(time.Hour) },
		"rename": func(*fixture) {},
	} {
		p := newFixture(t)
		prepare(p)
		fsy, stop := stopBefore(unsynced{fsys.OS{}}, toKey(op))
		req := acquire("k", "ann")
		answer := stop.begin(p.on(fsy), req)
		old := time.Now().Add(-2 * leftoverAge)
		names, err := p.reg.fs.Names(p.reg.tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Chtimes(filepath.Join(p.reg.tmp, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(stop.resume)
		if a := <-answer; a.Err != nil {
			t.Errorf("stopped before %s: %v", op, a.Err)
		}
		if rec := p.get("k"); rec.Grant != req.Secret.Grant() {
			t.Errorf("stopped before %s: the record is %+v", op, rec)
		}
	}
}
