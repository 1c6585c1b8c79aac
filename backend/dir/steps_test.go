package dir

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// acts are the requests that a process may be in the middle of. Each prepares a
// key and returns the request.
var acts = []struct {
	name    string
	prepare func(p *fixture, key string) tenure.Request
}{
	{"the first acquire", func(_ *fixture, key string) tenure.Request { return acquire(key, "ann") }},
	{"acquire after a release", func(p *fixture, key string) tenure.Request {
		if _, err := p.term(key); err != nil {
			p.Fatal(err)
		}
		return acquire(key, "ann")
	}},
	{"acquire after expiry", func(p *fixture, key string) tenure.Request {
		p.must(acquire(key, "bob"))
		p.clock.Advance(time.Hour)
		return acquire(key, "ann")
	}},
	{"acquire after a drop that was not finished", func(p *fixture, key string) tenure.Request {
		p.must(acquire(key, "bob"))
		if err := p.reg.fs.Mkdir(p.folder(key)+"/"+versionName(2), 0o700); err != nil {
			p.Fatal(err)
		}
		return acquire(key, "ann")
	}},
	{"renew", func(p *fixture, key string) tenure.Request {
		req := acquire(key, "ann")
		p.must(req)
		p.clock.Advance(time.Second)
		return then(tenure.Renew, req)
	}},
	{"the renew that prunes", func(p *fixture, key string) tenure.Request {
		req := acquire(key, "ann")
		p.must(req)
		for range pileMost {
			p.clock.Advance(time.Second)
			p.must(then(tenure.Renew, req))
		}
		return then(tenure.Renew, req)
	}},
	{"report", func(p *fixture, key string) tenure.Request {
		req := acquire(key, "ann")
		p.must(req)
		return then(tenure.Report, req)
	}},
	{"release", func(p *fixture, key string) tenure.Request {
		req := acquire(key, "ann")
		p.must(req)
		return then(tenure.Release, req)
	}},
	{"takeover", func(p *fixture, key string) tenure.Request {
		p.must(acquire(key, "bob"))
		req := acquire(key, "ann")
		req.Verb, req.Actor, req.Note = tenure.Takeover, "ann", "a test"
		return req
	}},
}

// stepKey returns a separate key for every step.
func stepKey(at int) string { return fmt.Sprintf("steps/%d", at) }

// faults decide for every step, counted from 1, whether and how it fails.
type faults struct {
	before, after func(n int, s fsys.Step) error
	tear          bool
}

// run sends the request through a handle that meets the faults. It returns the
// answer and the number of steps.
func (p *fixture) run(req tenure.Request, f faults) (store.Answer, int) {
	p.Helper()
	st, count := p.faulty(f)
	a := one(st, req)
	return a, count()
}

// faulty returns a handle whose steps meet the faults, and a function that
// returns how many steps it has taken.
func (p *fixture) faulty(f faults) (*Store, func() int) {
	var mu sync.Mutex
	n := 0
	fsy := &fsys.Faulty{FS: unsynced{fsys.OS{}}}
	fsy.Before = func(s fsys.Step) error {
		mu.Lock()
		defer mu.Unlock()
		n++
		if f.before == nil {
			return nil
		}
		return f.before(n, s)
	}
	fsy.After = func(s fsys.Step) error {
		mu.Lock()
		defer mu.Unlock()
		if f.after == nil {
			return nil
		}
		return f.after(n, s)
	}
	if f.tear {
		fsy.Tear = func(_ fsys.Step, size int) int { return size / 2 }
	}
	return p.on(fsy), func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// TestAFaultAtAnyStepLosesNothing: a crash after any step, or a full or failing
// disk at any step, leaves the record either unchanged or fully changed. The
// answer says which, or says unknown. Sending the request again completes it,
// and the key goes on.
func TestAFaultAtAnyStepLosesNothing(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(at int) faults{
		"crash": func(at int) faults {
			return faults{before: func(n int, _ fsys.Step) error { return failFrom(n >= at, fsys.ErrCrashed) }}
		},
		"torn crash": func(at int) faults {
			return faults{tear: true, before: func(n int, _ fsys.Step) error { return failFrom(n >= at, fsys.ErrCrashed) }}
		},
		"full disk": func(at int) faults {
			return faults{before: func(n int, _ fsys.Step) error { return failFrom(n == at, syscall.ENOSPC) }}
		},
		"failing disk": func(at int) faults {
			return faults{before: func(n int, _ fsys.Step) error { return failFrom(n == at, syscall.EIO) }}
		},
		"lost reply": func(at int) faults {
			return faults{after: func(n int, _ fsys.Step) error { return failFrom(n == at, syscall.EIO) }}
		},
	}
	for _, act := range acts {
		for kind, fault := range kinds {
			t.Run(act.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				p := newFixture(t)
				for at := 1; ; at++ {
					if steps := faultAt(p, act.prepare(p, stepKey(at)), fault(at)); steps < at {
						break
					}
				}
			})
		}
	}
}

func failFrom(fail bool, err error) error {
	if fail {
		return err
	}
	return nil
}

// faultAt plays one fault. It returns how many steps the request tried.
func faultAt(p *fixture, req tenure.Request, f faults) int {
	before := p.get(req.Key)
	after, _, err := tenure.Apply(before, req, p.clock.Now())
	if err != nil {
		p.Fatal(err)
	}
	var tried []string
	inner := f.before
	f.before = func(n int, s fsys.Step) error {
		tried = append(tried, s.Op)
		if inner == nil {
			return nil
		}
		return inner(n, s)
	}
	a, steps := p.run(req, f)
	where := fmt.Sprintf("after %v", tried)
	if a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
		p.Fatalf("%s: the answer is %v, want unknown", where, a.Err)
	}
	if strings.Contains(fmt.Sprint(a.Err), "no space left") && !strings.Contains(a.Err.Error(), "free some space") {
		p.Errorf("%s: the answer does not say what to do: %v", where, a.Err)
	}
	got, err := p.Get(context.Background(), req.Key)
	switch {
	case err != nil:
		p.Fatalf("%s: reading: %v", where, err)
	case a.Err == nil && !same(got, after):
		p.Fatalf("%s: the answer was success, but the record is %+v", where, got)
	case !same(got, before) && !same(got, after):
		p.Fatalf("%s: the record is neither as before nor as after: %+v", where, got)
	}
	again := one(p.Store, req)
	if again.Err != nil || !same(again.Record, after) {
		p.Fatalf("%s: asking again: %v, %+v", where, again.Err, again.Record)
	}
	p.clock.Advance(time.Hour)
	last, err := p.term(req.Key)
	if err != nil || last <= after.Token {
		p.Fatalf("%s: the next term: token %d after %d, %v", where, last, after.Token, err)
	}
	return steps
}

// same compares two records in the form that stores keep them in.
func same(a, b tenure.Record) bool {
	one, err := encodeRecord(a)
	if err != nil {
		return false
	}
	other, err := encodeRecord(b)
	return err == nil && reflect.DeepEqual(one, other)
}

// TestAProcessStoppedAtAnyStepTakesNothingFromTheNext: a process is stopped
// before any of its steps. Meanwhile others take the key, or the store is
// wiped, or it forgets the key. When the process goes on, it changes nothing of
// the new holder's and learns that it owns nothing.
func TestAProcessStoppedAtAnyStepTakesNothingFromTheNext(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]func(p *fixture, key string){
		"taken": func(p *fixture, key string) {
			p.clock.Advance(time.Hour)
			if _, err := p.terms(key, 3); err != nil {
				p.Fatal(err)
			}
		},
		"wiped": func(p *fixture, _ string) {
			p.clock.Advance(time.Second) // so that the next token is above all earlier ones
			wipe(p, p.root)
		},
		"dropped": func(p *fixture, _ string) {
			p.clock.Advance(2 * retention)
			if _, err := p.Sweep(p.Context()); err != nil {
				p.Fatal(err)
			}
		},
	}
	for _, act := range acts {
		if act.name == "takeover" {
			continue // an operator may take the key at any time
		}
		for what, happens := range meanwhile {
			t.Run(act.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				p := newFixture(t)
				for at := 1; ; at++ {
					if !stoppedAt(p, act.prepare(p, stepKey(at)), at, happens) {
						break
					}
				}
			})
		}
	}
}

// stoppedAt plays one stop. It returns false if the process has fewer steps.
func stoppedAt(p *fixture, req tenure.Request, at int, happens func(*fixture, string)) bool {
	p.Helper()
	n := 0
	var before fsys.Step
	fsy, stop := stopBefore(unsynced{fsys.OS{}}, func(s fsys.Step) bool { n++; before = s; return n == at })
	st := p.on(fsy)
	answer := stop.begin(st, req)
	select {
	case <-stop.reached:
	default:
		return false
	}
	where := fmt.Sprintf("stopped before step %d, %s %s", at, before.Op, before.Path)
	happens(p, req.Key)
	other := acquire(req.Key, "other")
	theirs := p.must(other).Record
	close(stop.resume)
	a := <-answer
	if a.Err == nil && a.Record.Grant == req.Secret.Grant() && a.Record.Token >= theirs.Token {
		p.Fatalf("%s: it was given token %d while another holds the key with %d", where, a.Record.Token, theirs.Token)
	}
	if again := one(st, req); again.Err == nil && req.Verb != tenure.Release {
		p.Fatalf("%s: asking again it is told that it owns the key: %+v", where, again.Record)
	}
	if now := p.get(req.Key); !same(now, theirs) {
		p.Fatalf("%s: the holder's record has become %+v", where, now)
	}
	p.must(then(tenure.Renew, other))
	p.must(then(tenure.Release, other))
	return true
}

// TestACrashInASweepLosesNothing: after a crash at any step of a sweep the
// record is whole or gone, and the key goes on.
func TestACrashInASweepLosesNothing(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	const key = "steps" // always the same, because a sweep visits the folder of every key there was
	for at := 1; ; at++ {
		last := p.must(acquire(key, "ann")).Record
		p.must(acquire("beside", "bob")) // a crash may come between two keys
		p.clock.Advance(2 * retention)
		st, count := p.faulty(faults{before: func(n int, _ fsys.Step) error { return failFrom(n >= at, fsys.ErrCrashed) }})
		_, _ = st.Sweep(t.Context())
		if count() < at {
			break
		}
		if got := p.get(key); !got.IsZero() && !same(got, last) {
			t.Fatalf("crash at step %d: the record is %+v", at, got)
		}
		if at%2 == 0 { // with and without another sweep first
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Fatalf("crash at step %d: the next sweep: %v", at, err)
			}
			if got := p.get(key); !got.IsZero() {
				t.Fatalf("crash at step %d: the next sweep left %+v", at, got)
			}
		}
		if token, err := p.term(key); err != nil || token <= last.Token {
			t.Fatalf("crash at step %d: the next term: token %d after %d, %v", at, token, last.Token, err)
		}
		p.clock.Advance(2 * retention)
		if _, err := p.Sweep(t.Context()); err != nil { // the next round begins with an empty store
			t.Fatalf("crash at step %d: the last sweep: %v", at, err)
		}
		if left, err := filepath.Glob(filepath.Join(p.root, "keys", "*", "*", "*")); err != nil || len(left) > 0 {
			t.Fatalf("crash at step %d: the last sweep left the lives %q, %v", at, left, err)
		}
	}
}

// TestAFaultAtAnyStepOfOpening: after a fault at any step of an opening, the
// next process finds a store or makes one.
func TestAFaultAtAnyStepOfOpening(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{fsys.ErrCrashed, syscall.ENOSPC, syscall.EIO} {
		for at := 1; ; at++ {
			root := testenv.Memory(t) + "/a/store"
			n := 0
			fsy := &fsys.Faulty{FS: unsynced{fsys.OS{}}, Before: func(fsys.Step) error {
				n++
				return failFrom(n == at || n > at && errors.Is(fault, fsys.ErrCrashed), fault)
			}}
			if st, err := Open(root, &Options{fs: fsy}); err == nil {
				if err := st.Close(); err != nil && n < at {
					t.Errorf("closing: %v", err)
				}
			} else if !errors.Is(err, fault) {
				t.Errorf("step %d: %v does not say that %v", at, err, fault)
			}
			if n < at {
				break
			}
			st, err := Open(root, nil)
			if err != nil {
				t.Fatalf("after %v at step %d: %v", fault, at, err)
			}
			if a := one(st, acquire("k", "ann")); a.Err != nil {
				t.Fatalf("after %v at step %d: %v", fault, at, a.Err)
			}
			st.Close()
		}
	}
}
