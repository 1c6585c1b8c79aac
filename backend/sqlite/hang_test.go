package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// hanging is a store whose next transaction hangs with the write lock, once
// hang is set and until resume is closed, like one on a disk that hangs.
type hanging struct {
	*Store
	hang           atomic.Bool
	inside, resume chan struct{}
}

func newHanging(t *testing.T) *hanging {
	return newHangingAt(t, filepath.Join(memoryDir(t), "croft.db"))
}

func newHangingAt(t *testing.T, file string) *hanging {
	h := &hanging{inside: make(chan struct{}), resume: make(chan struct{})}
	h.Store = open(t, file, &Options{now: func() time.Time {
		if h.hang.Swap(false) {
			close(h.inside)
			<-h.resume
		}
		return time.Now()
	}})
	return h
}

// TestADiskThatHangsHoldsNobody checks that all callers can leave when their
// contexts end, even the one whose transaction hangs, and that they are told
// why. Reading goes on. The transaction ends when the disk comes back, and
// asking again shows its outcome.
func TestADiskThatHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	st := newHanging(t)
	held := acquire("held", "ann")
	must(t, one(st, held).Err)
	st.hang.Store(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	go func() {
		<-st.inside
		cancel(reason)
	}()
	begun := acquire("begun", "ann")
	if a := st.Apply(ctx, []tenure.Request{begun})[0]; !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, reason) || !a.Record.IsZero() {
		t.Errorf("the caller whose transaction hangs: %+v", a)
	}
	waiting := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.queue)
	}
	const callers = 20
	patient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			a := st.Apply(patient, []tenure.Request{acquire("behind", "ann")})[0]
			if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) || !strings.Contains(a.Err.Error(), "the disk hangs") {
				t.Errorf("one behind it: %v", a.Err)
			}
		})
	}
	testenv.Eventually(t, "all wait behind it, for long", func() error {
		if n, since := waiting(), time.Since(*st.Store.inside.Load()); n < callers || since <= tooLong {
			return fmt.Errorf("%d wait after %s", n, since)
		}
		return nil
	})
	giveUp()
	all.Wait()
	if left := waiting(); left > 0 {
		t.Errorf("%d who have given up are still in the queue", left)
	}
	if rec, err := st.Get(t.Context(), "held"); err != nil || rec.Grant != held.Secret.Grant() {
		t.Errorf("reading meanwhile: %+v, %v", rec, err)
	}
	close(st.resume)
	must(t, one(st, acquire("after", "ann")).Err)
	must(t, one(st, then(tenure.Renew, held)).Err)
	if a := one(st, begun); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("asking again for what was begun: %+v, %v", a.Record, a.Err)
	}
	if rec, err := st.Get(t.Context(), "behind"); err != nil || !rec.IsZero() {
		t.Errorf("what nobody waited for was done all the same: %+v, %v", rec, err)
	}
	must(t, st.Close())
}

// TestClosingWaitsForWhatIsBegun checks that Close waits for the running
// transaction and for nothing else. Callers that ask meanwhile get ErrClosed.
func TestClosingWaitsForWhatIsBegun(t *testing.T) {
	t.Parallel()
	st := newHanging(t)
	st.hang.Store(true)
	begun := acquire("begun", "ann")
	answer := make(chan store.Answer, 1)
	go func() { answer <- one(st, begun) }()
	<-st.inside
	closed := make(chan error, 1)
	go func() { closed <- st.Close() }()
	if a := <-answer; !errors.Is(a.Err, ErrClosed) || !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("the caller whose transaction hangs: %v", a.Err)
	}
	if a := one(st, acquire("late", "ann")); !errors.Is(a.Err, ErrClosed) {
		t.Errorf("one who asks while it is closed: %v", a.Err)
	}
	select {
	case err := <-closed:
		t.Errorf("it is closed in the middle of a transaction: %v", err)
	default:
	}
	close(st.resume)
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(testenv.Patience):
		t.Fatal("it does not close")
	}
	again := open(t, st.base.file, nil)
	defer again.Close()
	if a := one(again, begun); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("what was begun: %+v, %v", a.Record, a.Err)
	}
}
