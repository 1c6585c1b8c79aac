package dir

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

const retention = 24 * time.Hour

// full asks for the largest tests, for make proof, which has more time.
var full = flag.Bool("all", false, "the largest crowds: 50 contenders, 200 rounds, 40 processes")

// many returns how often a test repeats something: all with -all, short with
// -short, and otherwise some.
func many(all, some, short int) int {
	switch {
	case *full:
		return all
	case testing.Short():
		return short
	}
	return some
}

// TestConformance: a directory keeps every promise of a store, under a clock
// that the suite moves.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Harness {
		root, clock := filepath.Join(testenv.Memory(tb), "store"), storetest.NewClock()
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				st := open(tb, root, &Options{Retention: o.Retention, now: clock.Now, fs: unsynced{fsys.OS{}}})
				st.tidy.close() // the suite moves the clock by days between two looks at a record
				return st
			},
			Wipe:    func(tb testing.TB) { wipe(tb, root) },
			Advance: clock.Advance,
			Slow:    !*full,
		}
	})
}

// TestConformanceOnTheFileSystemsClock: a directory keeps every promise about
// time on the clock that the store uses outside tests.
func TestConformanceOnTheFileSystemsClock(t *testing.T) {
	if testing.Short() {
		t.Skip("real time passes in it; TestConformance runs the same suite on a clock of its own")
	}
	storetest.RunTimed(t, func(tb testing.TB) storetest.Harness {
		root := filepath.Join(tb.TempDir(), "store")
		return storetest.Harness{
			Open: func(tb testing.TB, o storetest.Options) store.Store {
				return open(tb, root, &Options{Retention: o.Retention})
			},
			Wipe: func(tb testing.TB) { wipe(tb, root) },
			Slow: true,
		}
	})
}

func open(tb testing.TB, root string, o *Options) *Store {
	tb.Helper()
	st, err := Open(root, o)
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return st
}

// unsynced is a file system that does not wait for the disk. Only a power cut
// could show the difference, and these tests have none.
type unsynced struct{ fsys.FS }

func (u unsynced) Open(path fsys.Path, flag int, perm fs.FileMode) (fsys.File, error) {
	f, err := u.FS.Open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (u unsynced) SyncDir(path fsys.Path) error {
	_, err := u.Lstat(path)
	return err
}

type unsyncedFile struct{ fsys.File }

func (unsyncedFile) Sync() error { return nil }

// fixture is a directory with a clock that the test moves, and a handle on the
// directory that meets no faults.
type fixture struct {
	testing.TB
	*Store
	root  string
	clock *storetest.Clock
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	p := &fixture{TB: tb, root: filepath.Join(testenv.Memory(tb), "store"), clock: storetest.NewClock()}
	p.Store = p.another(nil)
	return p
}

// another opens one more handle. fsy is its file system; nil means one without
// faults.
func (p *fixture) another(fsy fsys.FS) *Store {
	p.Helper()
	if fsy == nil {
		fsy = unsynced{fsys.OS{}}
	}
	st := open(p, p.root, &Options{now: p.clock.Now, Retention: retention, fs: fsy})
	st.tidy.slice = testenv.Patience // a slow machine needs more than tidySlice
	p.Cleanup(func() { st.Close() })
	return st
}

// on returns a handle on the same directory that uses another file system and
// does nothing in the background. Do not close it.
func (p *fixture) on(fsy fsys.FS) *Store {
	l := *p.reg.layout
	l.fs = fsys.Below(fsy, l.root)
	reg := newRegister(&l, p.reg.clock)
	return &Store{
		Store: cas.New(reg, &cas.Options{Retention: retention, SweepEvery: -1}),
		reg:   reg,
		tidy:  tidying{reg: reg, retention: retention, closed: true},
	}
}

func (p *fixture) must(req tenure.Request) store.Answer {
	p.Helper()
	a := one(p.Store, req)
	if a.Err != nil {
		p.Fatalf("%s: %v", req.Verb, a.Err)
	}
	return a
}

func (p *fixture) get(key string) tenure.Record {
	p.Helper()
	rec, err := p.Get(context.Background(), key)
	if err != nil {
		p.Fatalf("Get(%q): %v", key, err)
	}
	return rec
}

// folder is the folder of the key's present life.
func (p *fixture) folder(key string) string {
	p.Helper()
	life, err := p.reg.life(hashOf(key))
	if err != nil || life == "" {
		p.Fatalf("the key %q has no life: %v", key, err)
	}
	return filepath.Join(p.reg.home(hashOf(key)), life)
}

// versions lists the names in the folder of the key's present life.
func (p *fixture) versions(key string) []string {
	p.Helper()
	names, err := p.reg.fs.Names(p.folder(key))
	if err != nil {
		p.Fatal(err)
	}
	return names
}

// newest is the path of the key's newest version.
func (p *fixture) newest(key string) string {
	p.Helper()
	numbers, err := p.reg.numbers(p.folder(key))
	if err != nil || len(numbers) == 0 {
		p.Fatalf("versions of %q: %v, %v", key, numbers, err)
	}
	return filepath.Join(p.folder(key), versionName(numbers[len(numbers)-1]))
}

func one(st store.Store, req tenure.Request) store.Answer {
	return st.Apply(context.Background(), []tenure.Request{req})[0]
}

func acquire(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

func then(verb tenure.Verb, of tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: of.Key, Secret: of.Secret, Progress: "on"}
}

// wipe empties a store's directory while handles on it are open. A handle may
// make files there meanwhile, because a release can start a sweep.
func wipe(tb testing.TB, root string) {
	tb.Helper()
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		err := os.RemoveAll(path)
		for try := 0; errors.Is(err, syscall.ENOTEMPTY) && try < 100; try++ {
			err = os.RemoveAll(path)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}
