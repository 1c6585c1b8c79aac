//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// A story is a list of moves: takeovers, writes of present and past owners, and
// faults. Its writers ask the store as croft write does: before they read, and
// again if reading took more than a second. It is played in virtual time, on
// real files.

// move is one step of a story.
type move struct {
	what  string
	owner int           // whose write, counted back from the newest
	d     time.Duration // how long: reading takes, or the move
	step  int           // before which step of the file system the writer pauses
	pause time.Duration // for how long
}

// The moves. Faults last until the move that ends them.
const (
	writes    = "write"
	takesOver = "take over"
	waits     = "wait"   // for d
	leaves    = "leave"  // the store cannot be reached
	returns   = "return" // it can be reached again
	slows     = "slow"   // from now on an answer of the store takes d
)

var spans = []time.Duration{0, 0, time.Millisecond, 900 * time.Millisecond, 3 * time.Second, 8 * time.Second}

var stories = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
	return move{
		what: rapid.SampledFrom([]string{
			writes, writes, writes, writes, takesOver, takesOver, waits, waits, leaves, returns, slows,
		}).Draw(t, "what"),
		owner: rapid.IntRange(0, 2).Draw(t, "owner"),
		d:     rapid.SampledFrom(spans).Draw(t, "d"),
		step:  rapid.IntRange(0, 40).Draw(t, "step"),
		pause: rapid.SampledFrom(spans).Draw(t, "pause"),
	}
}), 1, 15)

// flaw breaks the writers on purpose.
type flaw string

const (
	none      flaw = ""
	unchecked flaw = "the current check is left out"
	forgetful flaw = "the mark is not kept"
)

// drama plays a story.
type drama struct {
	t       *testing.T
	path    string
	chain   bool // of versions, as on a network mount
	admit   bool // --when-unsure admit
	flaw    flaw
	leases  *mem.Store
	writers sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	owners []fence.Stamp
	since  []time.Time // when each owner got the key
	newest fence.Token // that was seen in the file
	away   bool
	slow   time.Duration
	found  error // the first broken promise
}

// play plays a story in virtual time and returns the first broken promise.
func play(t *testing.T, d *drama, story []move) error {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d.t, d.path, d.leases = t, filepath.Join(dir, "out"), mem.New(nil)
		d.apply(tenure.Acquire)
		for _, m := range story {
			d.make(m)
			synctest.Wait()
			d.look()
		}
		d.make(move{what: returns})
		d.writers.Wait()
		if err := d.write(move{}, d.owners[len(d.owners)-1]); err != nil {
			d.broken("the newest owner was refused when all was well again: %v", err)
		}
		d.look()
		_ = d.leases.Close()
	})
	return d.found
}

// make makes a move.
func (d *drama) make(m move) {
	switch m.what {
	case writes:
		stamp := d.owners[max(0, len(d.owners)-1-m.owner)]
		d.writers.Go(func() { _ = d.write(m, stamp) })
	case takesOver:
		d.apply(tenure.Takeover)
	case waits:
		time.Sleep(m.d)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m.what {
	case leaves:
		d.away = true
	case returns:
		d.away, d.slow = false, 0
	case slows:
		d.slow = m.d
	}
}

// apply gives the key to a new owner.
func (d *drama) apply(verb tenure.Verb) {
	q := tenure.Request{Verb: verb, Key: "jobs/a", Secret: tenure.NewSecret(), Owner: "ann", TTL: 24 * time.Hour}
	if verb == tenure.Takeover {
		q.Actor, q.Note = "op", "stuck"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.leases.Apply(context.Background(), []tenure.Request{q})[0]
	if a.Err != nil {
		d.t.Fatal(a.Err)
	}
	d.owners, d.since = append(d.owners, a.Record.Stamp()), append(d.since, time.Now())
}

func (d *drama) broken(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found == nil {
		d.found = fmt.Errorf(format, args...)
	}
}

// open opens the guard for one process, which pauses before one of its steps.
func (d *drama) open(m move) *File {
	steps := 0
	fsy := &fsys.Faulty{FS: fsys.OS{}, Before: func(fsys.Step) error {
		if steps++; steps == m.step {
			time.Sleep(m.pause)
		}
		return nil
	}}
	if d.chain {
		return chainOpen(d.t, fsy, d.path)
	}
	f := guardOpen(d.t, d.path)
	f.fs = fsy
	return f
}

// lateAfter is how long reading may take before the writer asks again.
const lateAfter = time.Second

// asked is one question of a writer.
type asked struct {
	at     time.Time     // when the store read the record, or did not
	took   time.Duration // from then to the answer
	unsure bool
}

// write is a process that writes as croft write does.
func (d *drama) write(m move, stamp fence.Stamp) error {
	f := d.open(m)
	var last asked
	ask := func() error {
		if d.flaw == unchecked {
			last = asked{at: time.Now()}
			return nil
		}
		from := &source{d: d, asked: &last}
		err := current.Ask(context.Background(), from, stamp)
		if errors.Is(err, store.ErrUnknown) && d.admit {
			return nil
		}
		return err
	}
	began := time.Now()
	if err := ask(); err != nil {
		return err
	}
	if d.flaw == forgetful { // it pauses here, not in reading
		time.Sleep(m.d)
		m.d = 0
		_ = os.Remove(d.path + guardSuffix)
		_ = os.RemoveAll(d.path + guardSuffix + chainSuffix)
	}
	_, err := f.Write(context.Background(), stamp, &content{
		text: strconv.FormatInt(int64(stamp.Token), 10),
		end: func() error {
			time.Sleep(m.d)
			if time.Since(began) <= lateAfter {
				return nil
			}
			return ask()
		},
	})
	if err != nil {
		return err
	}
	d.look()
	d.mu.Lock()
	owners, since := d.owners, d.since
	d.mu.Unlock()
	for i, successor := range owners {
		if successor.Token > stamp.Token && since[i].Before(last.at) && !last.unsure {
			d.broken("token %d was let in: its owner asked %s after it was replaced", stamp.Token, last.at.Sub(since[i]))
		}
		allowed := last.took + lateAfter + m.pause + f.options.LockWait
		if late := time.Since(last.at); successor.Token > stamp.Token && late > allowed {
			d.broken("token %d was let in %s after it asked, more than %s", stamp.Token, late, allowed)
		}
	}
	if last.unsure && !d.admit {
		d.broken("token %d was let in although the store did not say whose it is", stamp.Token)
	}
	return nil
}

// look reads the committed content. It never goes back to an older owner's.
func (d *drama) look() {
	f := d.open(move{})
	var text []byte
	var err error
	if d.chain {
		text, _, err = chainContents(context.Background(), f)
	} else if text, err = os.ReadFile(d.path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if d.flaw == forgetful && err != nil {
		return // its folder may be gone
	}
	if err != nil {
		d.broken("reading: %v", err)
		return
	}
	token, _ := strconv.ParseInt(string(text), 10, 64)
	d.mu.Lock()
	newest := d.newest
	d.newest = max(newest, fence.Token(token))
	d.mu.Unlock()
	if fence.Token(token) < newest {
		d.broken("the file has the content of token %d after that of token %d", token, newest)
	}
}

// source is the store as a writer sees it.
type source struct {
	d     *drama
	asked *asked
}

// Get reads a record. Its answer may come late.
func (s *source) Get(ctx context.Context, key string) (tenure.Record, error) {
	s.d.mu.Lock()
	away, slow := s.d.away, s.d.slow
	s.d.mu.Unlock()
	*s.asked = asked{time.Now(), slow, away}
	if away {
		return tenure.Record{}, errors.New("the store is away")
	}
	rec, err := s.d.leases.Get(ctx, key)
	time.Sleep(slow)
	return rec, err
}

// Now returns the store's time.
func (s *source) Now(ctx context.Context) (time.Time, error) { return s.d.leases.Now(ctx) }

// content calls end when it has been read.
type content struct {
	text string
	end  func() error
}

// Read reads the text.
func (c *content) Read(p []byte) (int, error) {
	if n := copy(p, c.text); n > 0 {
		c.text = c.text[n:]
		return n, nil
	}
	if err := c.end(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// TestNoReplacedOwnerWritesForAnyInterleaving: for any story of takeovers,
// writes, pauses and outages of the store, no writer is let in that asked after
// it was replaced, and none at all after a successor's write.
func TestNoReplacedOwnerWritesForAnyInterleaving(t *testing.T) {
	t.Parallel()
	for name, chain := range map[string]bool{"sidecar": false, "chain": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				d := &drama{chain: chain, admit: rapid.Bool().Draw(r, "admit when unsure")}
				if err := play(t, d, stories.Draw(r, "story")); err != nil {
					r.Fatal(err)
				}
			})
		})
	}
}

// TestStoriesFindABrokenWriter: without the current check, or without the mark,
// a story shows it. In the same stories, writers that are whole keep the
// promise.
func TestStoriesFindABrokenWriter(t *testing.T) {
	t.Parallel()
	owner, replaced := move{what: writes}, move{what: writes, owner: 1}
	long := move{what: writes, d: 900 * time.Millisecond} // not long enough to ask again
	for broken, c := range map[flaw]struct {
		story []move
		told  string
	}{
		unchecked: {[]move{owner, {what: takesOver}, {what: waits, d: 1}, replaced}, "after it was replaced"},
		forgetful: {[]move{long, {what: takesOver}, owner, {what: waits, d: time.Second}}, "after that of token"},
	} {
		for name, chain := range map[string]bool{"sidecar": false, "chain": true} {
			t.Run(string(broken)+"/"+name, func(t *testing.T) {
				if err := play(t, &drama{chain: chain}, c.story); err != nil {
					t.Errorf("a writer that is whole: %v", err)
				}
				err := play(t, &drama{chain: chain, flaw: broken}, c.story)
				if err == nil || !strings.Contains(err.Error(), c.told) {
					t.Errorf("the story found %v", err)
				}
			})
		}
	}
}
