package dir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// stopped is a process that was stopped just before one of its steps on the
// file system, as by SIGSTOP.
type stopped struct {
	reached chan struct{} // closed when the step is reached
	resume  chan struct{} // close it to let the process go on
}

// stopBefore returns a file system that stops the process before the first
// matching step, until it is resumed.
func stopBefore(fsy fsys.FS, match func(fsys.Step) bool) (*fsys.Faulty, stopped) {
	s := stopped{make(chan struct{}), make(chan struct{})}
	var once sync.Once
	return &fsys.Faulty{FS: fsy, Before: func(step fsys.Step) error {
		if match(step) {
			once.Do(func() {
				close(s.reached)
				<-s.resume
			})
		}
		return nil
	}}, s
}

// toKey matches a step of kind op below keys, such as giving a version its
// name.
func toKey(op string) func(fsys.Step) bool {
	return func(s fsys.Step) bool { return s.Op == op && strings.Contains(s.Path, "/keys/") }
}

// begin sends a request in the background. It returns when the process is
// stopped, or when it has answered without coming to that step.
func (s stopped) begin(st *Store, req tenure.Request) <-chan store.Answer {
	answer, answered := make(chan store.Answer, 1), make(chan struct{})
	go func() {
		defer close(answered)
		answer <- one(st, req)
	}()
	select {
	case <-s.reached:
	case <-answered:
	}
	return answer
}

// TestALinkerStoppedWhileVersionsArePrunedPastIt: between its listing and its
// link others go on, and prune the very number it links. That link gives it no
// grant.
func TestALinkerStoppedWhileVersionsArePrunedPastIt(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			if err := prunedPast(newFixture(t), unsynced{fsys.OS{}}, held); err != nil {
				t.Error(err)
			}
		})
	}
}

// prunedPast plays the race and returns the promise that was broken. The
// stopped process uses the file system slow.
func prunedPast(p *fixture, slow fsys.FS, held bool) error {
	const key = "race/pruned"
	if _, err := p.term(key); err != nil {
		return err
	}
	fsy, stop := stopBefore(slow, toKey("link"))
	mine := acquire(key, "slow")
	answer := stop.begin(p.another(fsy), mine)
	other := acquire(key, "other")
	last, err := p.terms(key, 3)
	if err == nil && held {
		a := one(p.Store, other)
		last, err = a.Record.Token, a.Err
	}
	close(stop.resume)
	a := <-answer
	if err != nil {
		return err
	}
	now, err := p.Get(p.Context(), key)
	if err != nil {
		return err
	}
	switch {
	case held && (!errors.Is(a.Err, tenure.ErrHeld) || now.Grant != other.Secret.Grant()):
		return fmt.Errorf("while another holds it the answer is %w and the record %+v", a.Err, now)
	case !held && (a.Err != nil || a.Record.Token <= last || now.Grant != mine.Secret.Grant()):
		return fmt.Errorf("when it is free the answer is %w with token %d after %d", a.Err, a.Record.Token, last)
	}
	if names := p.versions(key); len(names) != 1 {
		return fmt.Errorf("a stray was left: %v", names)
	}
	return nil
}

// terms lets another owner have the key n times. It checks that the earlier
// versions are pruned: only then can the race happen.
func (p *fixture) terms(key string, n int) (last fence.Token, err error) {
	for range n {
		if last, err = p.term(key); err != nil {
			return 0, err
		}
	}
	if n := len(p.versions(key)); n != 1 {
		return 0, fmt.Errorf("%d versions are left", n)
	}
	return last, nil
}

// term is one whole term of another owner.
func (p *fixture) term(key string) (fence.Token, error) {
	req := acquire(key, "other")
	a := one(p.Store, req)
	if a.Err != nil {
		return 0, fmt.Errorf("acquire: %w", a.Err)
	}
	if a := one(p.Store, then(tenure.Release, req)); a.Err != nil {
		return 0, fmt.Errorf("release: %w", a.Err)
	}
	return a.Record.Token, nil
}

// TestALinkerStoppedWhileTheStoreIsWipedAndReborn: between its listing and its
// link the store is wiped and the key begins anew, with the same numbers.
func TestALinkerStoppedWhileTheStoreIsWipedAndReborn(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"", "keys"} {
		t.Run("wiped="+part, func(t *testing.T) {
			p := newFixture(t)
			if err := reborn(p, p.another, func() { wipe(t, filepath.Join(p.root, part)) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestALinkerStoppedWhileTheKeyIsDroppedAndReborn: the same race, when the
// store drops the key by its own rule.
func TestALinkerStoppedWhileTheKeyIsDroppedAndReborn(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	err := reborn(p, p.another, func() {
		p.clock.Advance(2 * retention)
		if n, err := p.Sweep(t.Context()); n != 1 || err != nil {
			t.Fatalf("dropped %d keys: %v", n, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// reborn plays the race. The stopped process has read a life with one version.
// When it goes on, the next life also has one version.
func reborn(p *fixture, open func(fsys.FS) *Store, forget func()) error {
	const key = "race/reborn"
	st := open(nil)
	if a := one(st, acquire(key, "first")); a.Err != nil {
		return a.Err
	}
	p.clock.Advance(time.Hour) // expired: the next to ask gets a grant
	fsy, stop := stopBefore(unsynced{fsys.OS{}}, toKey("link"))
	answer := stop.begin(open(fsy), acquire(key, "slow"))
	forget()
	other := acquire(key, "other")
	given := one(st, other)
	if given.Err != nil || given.Record.Cause != tenure.First {
		return fmt.Errorf("the next life begins with %w, cause %q", given.Err, given.Record.Cause)
	}
	close(stop.resume)
	a := <-answer
	if now := p.get(key); !errors.Is(a.Err, tenure.ErrHeld) || now.Grant != other.Secret.Grant() {
		return fmt.Errorf("while another holds the next life the answer is %w and the record %+v", a.Err, now)
	}
	if a := one(st, then(tenure.Renew, other)); a.Err != nil {
		return fmt.Errorf("the holder of the next life renews: %w", a.Err)
	}
	return nil
}

// TestADropperStoppedWhileTheKeyGoesOn: a process is stopped at any step of a
// drop, and the key is acquired again. When it goes on, it takes nothing from
// that key.
func TestADropperStoppedWhileTheKeyGoesOn(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"mkdir", "rename", "remove"} {
		t.Run(at, func(t *testing.T) {
			p := newFixture(t)
			const key = "race/drop"
			p.must(acquire(key, "first"))
			p.clock.Advance(2 * retention)
			match := toKey(at)
			if at == "rename" { // to the staging folder
				match = func(s fsys.Step) bool { return s.Op == at && strings.Contains(s.Path, "dropped") }
			}
			fsy, stop := stopBefore(unsynced{fsys.OS{}}, match)
			done := make(chan error, 1)
			slow := p.another(fsy)
			go func() {
				_, err := slow.Sweep(t.Context())
				done <- err
			}()
			<-stop.reached
			var other tenure.Request
			for range 2 { // a term that ends, and one that lasts
				if other.Key != "" {
					p.must(then(tenure.Release, other))
				}
				other = acquire(key, "other")
				p.must(other)
			}
			close(stop.resume)
			if err := <-done; err != nil {
				t.Errorf("the sweep: %v", err)
			}
			if rec := p.get(key); rec.Grant != other.Secret.Grant() {
				t.Errorf("the holder's record is gone: %+v", rec)
			}
			p.must(then(tenure.Renew, other))
		})
	}
}

// TestALinkerStoppedBeforeATombstone: a grant and a drop compete for the same
// number, and one of them gets it.
func TestALinkerStoppedBeforeATombstone(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	const key = "race/tombstone"
	p.must(acquire(key, "first"))
	p.clock.Advance(2 * retention)
	fsy, stop := stopBefore(unsynced{fsys.OS{}}, toKey("link"))
	mine := acquire(key, "slow")
	answer := stop.begin(p.another(fsy), mine)
	// Only the tombstone, as if the dropper had then been stopped for good.
	if err := os.Mkdir(filepath.Join(p.folder(key), versionName(2)), 0o700); err != nil {
		t.Fatal(err)
	}
	close(stop.resume)
	a := <-answer
	if a.Err != nil || a.Record.Cause != tenure.First || a.Record.Terms != 1 {
		t.Errorf("after a drop: %v, cause %q, term %d; want a key that begins anew", a.Err, a.Record.Cause, a.Record.Terms)
	}
	if rec := p.get(key); rec.Grant != mine.Secret.Grant() {
		t.Errorf("the record is %+v", rec)
	}
}
