package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// leaping is a clock that steps forwards and backwards at random.
type leaping struct {
	mu     sync.Mutex
	random *rand.Rand
	offset time.Duration
}

func (l *leaping) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.random.IntN(8) {
	case 0:
		l.offset -= time.Duration(l.random.Int64N(int64(48 * time.Hour)))
	case 1:
		l.offset += time.Duration(l.random.Int64N(int64(40 * time.Hour)))
	}
	return time.Now().Add(l.offset)
}

// TestNoClockMakesTwoOwnersOfOneToken uses two stores on one file whose clocks
// step back and forth by days. Laws 1 to 3 hold under any clock: no token is
// granted twice, the tokens of a key rise strictly, a secret is granted once,
// and no admitted write is older than one before it. Every record stays valid.
func TestNoClockMakesTwoOwnersOfOneToken(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	file := filepath.Join(memoryDir(t), "croft.db")
	var stores []*Store
	for n := range uint64(2) {
		clock := &leaping{random: rand.New(rand.NewPCG(seed, n))}
		// Without sweeps: they forget records, and the laws promise less after
		// that.
		st := open(t, file, &Options{now: clock.Now, SweepEvery: -1, LockWait: 30 * time.Second})
		defer st.Close()
		stores = append(stores, st)
	}
	db, err := connections(file, 30*time.Second)
	must(t, err)
	defer db.Close()
	g := guardIn(t, db, FenceRow{Name: "artifact"}, nil)
	random := rand.New(rand.NewPCG(seed, 2))
	var newest, admitted fence.Token
	granted, refused := 0, 0
	var terms []tenure.Request
	for range 250 {
		st := stores[random.IntN(2)]
		req := acquire("k", fmt.Sprint(random.IntN(3)))
		switch a := one(st, req); {
		case a.Err == nil:
			if a.Record.Token <= newest {
				t.Fatalf("token %d after %d", a.Record.Token, newest)
			}
			newest = a.Record.Token
			granted++
			terms = append(terms, req)
		case !errors.Is(a.Err, tenure.ErrHeld):
			t.Fatal(a.Err)
		}
		if len(terms) == 0 {
			continue
		}
		old := terms[max(0, len(terms)-1-random.IntN(4))]
		for _, verb := range []tenure.Verb{tenure.Renew, tenure.Report, tenure.Release} {
			if random.IntN(3) > 0 {
				continue
			}
			again := then(verb, old)
			if verb == tenure.Report {
				again.Progress = "p"
			}
			if a := one(st, again); a.Err != nil && !errors.Is(a.Err, tenure.ErrNotOwned) {
				t.Fatalf("%s: %v", verb, a.Err)
			}
		}
		if a := one(stores[random.IntN(2)], old); a.Err == nil && a.Record.Token != newest {
			t.Fatalf("a late copy of a request was granted token %d, the newest is %d", a.Record.Token, newest)
		} else if a.Err != nil && !errors.Is(a.Err, tenure.ErrNotOwned) && !errors.Is(a.Err, tenure.ErrHeld) {
			t.Fatal(a.Err)
		}
		rec, err := st.Get(t.Context(), "k")
		must(t, err)
		if rec.Token != newest {
			t.Fatalf("the record has token %d, the newest grant was %d", rec.Token, newest)
		}
		for _, stamp := range []fence.Stamp{rec.Stamp(), stampOfTerm("k", rec.History[random.IntN(len(rec.History))])} {
			err := inside(t.Context(), db, func(tx *sql.Tx) error { return g.Admit(t.Context(), tx, stamp) })
			switch {
			case err == nil && stamp.Token < admitted:
				t.Fatalf("a write of %d was admitted after one of %d", stamp.Token, admitted)
			case err == nil:
				admitted = stamp.Token
			case errors.Is(err, fence.ErrStale):
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if granted < 10 || refused < 10 {
		t.Errorf("%d grants and %d refused writes: the test shows little", granted, refused)
	}
	for _, err := range stores[0].List(context.Background(), "") {
		must(t, err)
	}
	inOrder(t, file)
}

func stampOfTerm(key string, term tenure.Term) fence.Stamp {
	return fence.Stamp{Key: key, Token: term.Token, Grant: term.Grant}
}
