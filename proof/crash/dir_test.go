//go:build linux || darwin

package crash

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// dirRun records directory stores on one folder.
type dirRun struct {
	*client
	wrap func(fsys.FS) fsys.FS // goes between a store and the recorder; nil for none
	open []*dir.Store
}

func newDirRun(tb testing.TB, wrap func(fsys.FS) fsys.FS) *dirRun {
	tb.Helper()
	r := &dirRun{client: &client{tb, NewRecorder(testenv.Memory(tb)), storetest.NewClock()}, wrap: wrap}
	tb.Cleanup(r.close)
	return r
}

const dirRetention = 24 * time.Hour

// process opens one more store on the folder, like another process.
func (r *dirRun) process() *dir.Store {
	r.Helper()
	var fsy fsys.FS = r.rec
	if r.wrap != nil {
		fsy = r.wrap(fsy)
	}
	st, err := inject.Dir(filepath.Join(r.rec.Top(), "store"), dirRetention, fsy, r.clock.Now)
	if err != nil {
		r.Fatal(err)
	}
	r.open = append(r.open, st.(*dir.Store))
	return st.(*dir.Store)
}

// close closes all stores, and so ends their background work.
func (r *dirRun) close() {
	for _, st := range r.open {
		_ = st.Close()
	}
	r.open = nil
}

func (r *dirRun) search(s Search) Report {
	r.Helper()
	r.close()
	return r.rec.Search(r, s, func(top string, notes []any) error {
		return lawful(func(now func() time.Time) (store.Store, error) {
			return inject.Dir(filepath.Join(top, "store"), dirRetention, nil, now)
		}, notes)
	})
}

// dirLives are the scenes that are recorded, by name.
var dirLives = map[string]func(r *dirRun){
	"two keys, two processes": func(r *dirRun) {
		one, two := r.process(), r.process()
		a := acquire("job/a", "ann")
		r.ask(one, a)
		r.ask(one, then(tenure.Renew, a))
		b := acquire("job/b", "ann")
		r.ask(two, b)
		r.ask(one, then(tenure.Release, a))
		r.ask(two, acquire("job/a", "bob"))
		r.ask(one, takeover("job/b"))
		r.ask(two, takeover("job/a"))
	},
	"a checkpoint just before the cut": func(r *dirRun) {
		st := r.process()
		a := acquire("job/a", "ann")
		r.ask(st, a)
		r.ask(st, then(tenure.Renew, a))
		r.ask(st, then(tenure.Checkpoint, a))
	},
	"renewals until they are pruned": func(r *dirRun) {
		st := r.process()
		a := acquire("job/a", "ann")
		r.ask(st, a)
		for range 18 {
			r.ask(st, then(tenure.Renew, a))
		}
		r.ask(st, then(tenure.Release, a))
	},
	"dropped and born again": func(r *dirRun) {
		st := r.process()
		a := acquire("job/a", "ann")
		r.ask(st, a)
		r.ask(st, then(tenure.Renew, a))
		r.ask(st, then(tenure.Release, a))
		r.clock.Advance(2 * dirRetention)
		r.rec.Note(swept{})
		if _, err := st.Sweep(r.Context()); err != nil {
			r.Fatal(err)
		}
		r.ask(st, acquire("job/a", "bob"))
	},
	"dropped by another, and begun again by one that died": func(r *dirRun) {
		st := r.process()
		a := acquire("job/a", "ann")
		r.ask(st, a)
		r.ask(st, then(tenure.Release, a))
		r.clock.Advance(2 * dirRetention)
		r.rec.Note(swept{})
		if _, err := r.process().Sweep(r.Context()); err != nil {
			r.Fatal(err)
		}
		sum := sha256.Sum256([]byte("job/a"))
		shard := filepath.Join(r.rec.Top(), "store", "keys", hex.EncodeToString(sum[:1]))
		if err := r.rec.Mkdir(fsys.Anywhere(shard), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			r.Fatal(err)
		}
		r.ask(st, acquire("job/a", "bob"))
	},
}

// lifeSearch is the search for sound and broken stores alike.
func lifeSearch() Search { return Search{OneIn: oneIn(40)} }

// A directory store must survive a power cut after any step.
func TestADirectoryStoreSurvivesEveryPowerCut(t *testing.T) {
	t.Parallel()
	for name, life := range dirLives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDirRun(t, nil)
			life(r)
			report := r.search(lifeSearch())
			t.Log(report)
			if report.Wrong != "" {
				t.Error(report.Wrong)
			}
		})
	}
}

// deaths are requests in whose middle a process is killed. Each prepares the
// store and returns the request.
var deaths = map[string]func(r *dirRun, st store.Store) tenure.Request{
	"first acquire, and the store's making": nil,
	"first acquire":                         func(*dirRun, store.Store) tenure.Request { return acquire("job/a", "ann") },
	"acquire after a release": func(r *dirRun, st store.Store) tenure.Request {
		a := acquire("job/a", "bob")
		r.ask(st, a)
		r.ask(st, then(tenure.Release, a))
		return acquire("job/a", "ann")
	},
	"release": func(r *dirRun, st store.Store) tenure.Request {
		a := acquire("job/a", "ann")
		r.ask(st, a)
		return then(tenure.Release, a)
	},
	"takeover": func(r *dirRun, st store.Store) tenure.Request {
		r.ask(st, acquire("job/a", "bob"))
		return takeover("job/a")
	},
}

// successors are the ways to go on after a process was killed.
var successors = []struct {
	name string
	goOn func(r *dirRun, req tenure.Request)
}{
	// The client still has its secret, and asks again. Only one of its threads
	// was killed, or its disk failed for a moment.
	{"the same asks again", func(r *dirRun, req tenure.Request) { r.ask(r.process(), req) }},
	{"another takes the key", func(r *dirRun, req tenure.Request) {
		r.clock.Advance(2 * ttl)
		r.ask(r.process(), acquire(req.Key, "carl"))
	}},
	{"another renews, and then releases", func(r *dirRun, req tenure.Request) {
		r.clock.Advance(2 * ttl)
		st, mine := r.process(), acquire(req.Key, "carl")
		r.ask(st, mine)
		r.ask(st, then(tenure.Renew, mine))
		r.ask(st, then(tenure.Release, mine))
	}},
}

// dirDeath kills a process before one of its steps, lets another process go on,
// and then cuts the power. It does so for the steps first, first+every,
// first+2*every and so on. Opening the store is among the steps. It ends at the
// first step after which something is wrong.
func dirDeath(t *testing.T, first, every int, prepare func(*dirRun, store.Store) tenure.Request, goOn func(*dirRun, tenure.Request)) (total Report) {
	t.Helper()
	for at := first; ; at += every {
		r := newDirRun(t, nil)
		var req tenure.Request
		if prepare != nil {
			req = prepare(r, r.process())
		}
		var n atomic.Int64 // the store tidies in the background
		faulty := &fsys.Faulty{FS: r.rec, Before: func(fsys.Step) error {
			if n.Add(1) >= int64(at) {
				return fsys.ErrCrashed
			}
			return nil
		}}
		if prepare == nil {
			req = acquire("job/a", "ann")
		}
		if st, err := inject.Dir(filepath.Join(r.rec.Top(), "store"), dirRetention, faulty, r.clock.Now); err == nil {
			r.try(st, req)
			_ = st.Close() // its process is dead
		}
		if n.Load() < int64(at) {
			return total
		}
		goOn(r, req)
		report := r.search(Search{From: r.rec.Len(), Draws: 2, Recent: 4, OneIn: oneIn(30)})
		total.Steps = max(total.Steps, report.Steps)
		total.Cuts, total.Folders, total.Recovered = total.Cuts+report.Cuts, total.Folders+report.Folders, total.Recovered+report.Recovered
		if report.Wrong != "" {
			total.Wrong = fmt.Sprintf("killed before step %d; %s", at, report.Wrong)
			return total
		}
	}
}

// A killed process may leave names that no sync has made safe. The next process
// must not confirm anything that a power cut could then take back.
func TestUnsyncedNamesOfAKilledProcessAreNotTrusted(t *testing.T) {
	t.Parallel()
	for death, prepare := range deaths {
		for i, next := range successors {
			t.Run(death+"/"+next.name, func(t *testing.T) {
				t.Parallel()
				first, every := 1, 1
				if i > 0 && !*all { // the first successor tests every step, the others share them
					first, every = i, len(successors)-1
				}
				report := dirDeath(t, first, every, prepare, next.goOn)
				t.Log(report)
				if report.Wrong != "" {
					t.Error(report.Wrong)
				}
			})
		}
	}
}
