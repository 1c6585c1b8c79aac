package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// eventRig is a rig that looks at its store often.
func eventRig(t *testing.T, st *mem.Store, o *Options) *rig {
	r := rigOver(t, st, nil, o)
	r.srv.feed.every = 5 * time.Millisecond
	return r
}

// events opens the stream of changes. from is the Last-Event-ID, "" for none.
func (r *rig) events(name, query, from string) (lines *bufio.Scanner, end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req := as(name, r.request(http.MethodGet, "/v1/events"+query, ""))
	if from != "" {
		req.Header.Set("Last-Event-ID", from)
	}
	resp, err := r.front.Client().Do(req.WithContext(ctx)) //nolint:bodyclose // end closes it
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%v, %v", resp, err)
	}
	return bufio.NewScanner(resp.Body), func() {
		cancel()
		_ = resp.Body.Close()
	}
}

// change reads the next change of a stream, as "change key owner", and the last
// id that came after it.
func change(t *testing.T, lines *bufio.Scanner) (what, id string) {
	t.Helper()
	kind := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			var c wire.Change
			if err := json.Unmarshal([]byte(value), &c); err != nil {
				t.Fatalf("%s: %v", value, err)
			}
			what = strings.TrimSpace(fmt.Sprintf("%s %s %s %s", kind, c.Change, c.Key, c.Owner))
		case "id":
			if id = value; what != "" {
				return what, id
			}
		}
	}
	t.Fatal("the stream has ended")
	return "", ""
}

func operate(verb tenure.Verb, key string) tenure.Request {
	return tenure.Request{
		Verb: verb, Key: key, Secret: tenure.NewSecret(), Owner: "opal", Actor: "opal", Note: "why", TTL: time.Hour,
	}
}

func (r *rig) apply(q tenure.Request) {
	r.t.Helper()
	if a := r.mem.Apply(r.t.Context(), []tenure.Request{q})[0]; a.Err != nil {
		r.t.Fatal(a.Err)
	}
}

// TestEventsTellTransfersEndsAndRefusals of the keys that begin with the prefix
// and that the client may read, and of no others.
func TestEventsTellTransfersEndsAndRefusals(t *testing.T) {
	t.Parallel()
	clk := storetest.NewClock()
	r := eventRig(t, mem.New(&mem.Options{Now: clk.Now}), &Options{Access: rules{"ann": "a/", "bob": "b/"}})
	all, end := r.events("ann", "", "")
	defer end()
	some, end := r.events("ann", "?prefix=a/x/", "")
	defer end()
	next := func(lines *bufio.Scanner, want string) {
		t.Helper()
		if got, _ := change(t, lines); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	first := acquireOf("a/b", "ann")
	r.apply(acquireOf("b/hidden", "bob"))
	r.apply(first)
	next(all, "transfer granted a/b ann")
	r.apply(tenure.Request{Verb: tenure.Release, Key: "a/b", Secret: first.Secret, Failed: true})
	next(all, "end failed a/b ann")
	r.apply(operate(tenure.Takeover, "a/b"))
	next(all, "transfer taken_over a/b opal")
	r.apply(operate(tenure.Reserve, "a/b"))
	next(all, "transfer reserved a/b opal")
	r.apply(operate(tenure.Revoke, "a/b"))
	next(all, "transfer revoked a/b")
	short := acquireOf("a/x/y", "cleo")
	short.TTL = time.Second
	r.apply(short)
	next(all, "transfer granted a/x/y cleo")
	next(some, "transfer granted a/x/y cleo")
	clk.Advance(2 * time.Second) // nobody renews it
	next(all, "end expired a/x/y cleo")
	next(some, "end expired a/x/y cleo")
	for _, key := range []string{"b/hidden", "a/x/y"} {
		r.apply(tenure.Request{
			Verb: tenure.Revoke, Key: "croft.refused/" + key[:1], Secret: tenure.NewSecret(), Actor: "cleo",
			Note: `{"act":"write","code":"stale","key":"` + key + `","token":7}`,
		})
	}
	next(all, "refusal refused a/x/y cleo")
	next(some, "refusal refused a/x/y cleo")
}

// TestAStreamOfEventsResumes at another server of the same store. What happened
// in between is told.
func TestAStreamOfEventsResumes(t *testing.T) {
	t.Parallel()
	st := mem.New(nil)
	one, two := eventRig(t, st, nil), eventRig(t, st, nil)
	lines, end := one.events("", "", "")
	one.apply(acquireOf("a/1", "ann"))
	_, id := change(t, lines)
	end()
	one.srv.Drain()
	for n := 2; n <= 4; n++ {
		two.apply(acquireOf(fmt.Sprintf("a/%d", n), "ann"))
	}
	lines, end = two.events("", "?prefix=a/", id)
	defer end()
	two.apply(acquireOf("a/5", "ann"))
	told := map[string]bool{}
	for n := 2; n <= 5; n++ {
		want := fmt.Sprintf("a/%d", n)
		for !told[want] {
			if !lines.Scan() {
				t.Fatalf("the stream ended before %s", want)
			}
			for n := 1; n <= 5; n++ {
				key := fmt.Sprintf("a/%d", n)
				told[key] = told[key] || strings.Contains(lines.Text(), `"key":"`+key+`"`)
			}
		}
	}
}

// TestAStreamSaysWhatItCannotTell: a key's record has forgotten older terms.
func TestAStreamSaysWhatItCannotTell(t *testing.T) {
	t.Parallel()
	r := eventRig(t, mem.New(nil), nil)
	from := fmt.Sprint(time.Now().UnixMicro())
	for range tenure.HistoryLen + 2 {
		r.apply(operate(tenure.Takeover, "a/b"))
	}
	lines, end := r.events("", "", from)
	defer end()
	if got := next(lines, "event:"); got != "event: missed" {
		t.Errorf("the stream begins with %q", got)
	}
	// A client that may not read the key hears nothing of that.
	hidden := eventRig(t, r.mem, &Options{Access: rules{"bob": "b/"}})
	lines, end = hidden.events("bob", "", from)
	defer end()
	hidden.apply(acquireOf("b/c", "bob"))
	if got := next(lines, "event:"); got != "event: transfer" {
		t.Errorf("the stream of a client that may not read the key begins with %q", got)
	}
	for _, bad := range []string{"x", "-1", "99999999999999999999", "9007199254740993"} {
		req := r.request(http.MethodGet, "/v1/events", "")
		req.Header.Set("Last-Event-ID", bad)
		status, body := r.do(req)
		refused(t, bad, status, body, http.StatusBadRequest, wire.Invalid)
	}
}

// damagedStore is a store with a damaged record. Its listings leave out
// histories.
type damagedStore struct {
	*mem.Store
	gets atomic.Int64
}

func (d *damagedStore) Get(ctx context.Context, key string) (tenure.Record, error) {
	d.gets.Add(1)
	return d.Store.Get(ctx, key)
}

func (d *damagedStore) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		for rec, err := range d.Store.List(ctx, prefix) {
			if rec.History = nil; !yield(rec, err) || err != nil {
				return
			}
		}
		yield(tenure.Record{}, store.Unknown(fmt.Errorf("%w: a/damaged", store.ErrDamaged)))
	}
}

// TestADamagedRecordHidesNoChangesOfOthers: streams tell them, and resume. The
// looks do not read the changes of the last hour again and again. The log has
// the damage once.
func TestADamagedRecordHidesNoChangesOfOthers(t *testing.T) {
	t.Parallel()
	clk := storetest.NewClock()
	base := mem.New(&mem.Options{Now: clk.Now})
	st := &damagedStore{Store: base}
	var told atomic.Int64
	r := rigOver(t, base, func(store.Store) store.Store { return st }, &Options{Observe: func(e Event) {
		if e.Kind == Failed {
			told.Add(1)
		}
	}})
	r.srv.feed.every = time.Millisecond
	lines, end := r.events("", "", "")
	defer end()
	r.apply(operate(tenure.Takeover, "a/b"))
	what, id := change(t, lines)
	if what != "transfer taken_over a/b opal" {
		t.Errorf("told %q", what)
	}
	end()
	r.apply(operate(tenure.Takeover, "a/c"))
	lines, end = r.events("", "?prefix=a/", id)
	defer end()
	for what != "transfer taken_over a/c opal" {
		what, _ = change(t, lines)
	}
	for range 2 { // both have a history now
		r.apply(operate(tenure.Takeover, "a/b"))
		what, _ = change(t, lines)
	}
	clk.Advance(time.Minute)
	r.apply(operate(tenure.Takeover, "a/d"))
	for what != "transfer taken_over a/d opal" {
		what, _ = change(t, lines)
	}
	asked, mark := st.gets.Load(), clk.Now()
	clk.Advance(time.Minute)
	r.apply(operate(tenure.Takeover, "a/e"))
	for what != "transfer taken_over a/e opal" {
		what, _ = change(t, lines)
	}
	testenv.Eventually(t, "the feed has got on", func() error {
		r.srv.feed.mu.Lock()
		defer r.srv.feed.mu.Unlock()
		if !r.srv.feed.mark.After(mark) {
			return fmt.Errorf("it is at %s", r.srv.feed.mark)
		}
		return nil
	})
	if n := st.gets.Load() - asked; n != 0 {
		t.Errorf("%d records were read again", n)
	}
	if n := told.Load(); n > 2 { // two feeds: the first stream has ended
		t.Errorf("the log has the damage %d times", n)
	}
}

// TestNoStreamsNoLooks: the server looks at the store only for streams, and
// once for all of them.
func TestNoStreamsNoLooks(t *testing.T) {
	t.Parallel()
	base := mem.New(nil)
	r := rigOver(t, base, nil, nil)
	r.srv.feed.every = time.Millisecond
	var ends []func()
	for range 3 {
		_, end := r.events("", "", "")
		ends = append(ends, end)
	}
	r.srv.feed.mu.Lock()
	if n := r.srv.feed.streams; n != 3 || r.srv.feed.stop == nil {
		t.Errorf("%d streams", n)
	}
	r.srv.feed.mu.Unlock()
	for _, end := range ends {
		end()
	}
	r.srv.Drain()
	r.front.Close() // waits for the handlers
	r.srv.feed.mu.Lock()
	defer r.srv.feed.mu.Unlock()
	if f := r.srv.feed; f.streams != 0 || f.stop != nil || f.seen != nil {
		t.Errorf("after the last stream: %d streams, %d seen", f.streams, len(f.seen))
	}
}

// counted counts the listings of a store.
type counted struct {
	*mem.Store
	lists atomic.Int64
}

func (c *counted) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix)
}

// TestTenThousandIdleStreamsCostOneLook a second, and little memory each. It
// runs alone, because it measures the memory of the process.
func TestTenThousandIdleStreamsCostOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, seconds = 10_000, 40
		st := &counted{Store: mem.New(nil)}
		defer st.Close()
		srv := New(st, &Options{MaxStreams: streams, MaxCalls: streams, Heartbeat: time.Minute})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				w := httptest.NewRecorder()
				srv.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		time.Sleep(seconds * time.Second) // the time of the bubble
		runtime.GC()
		runtime.ReadMemStats(&after)
		// A look of the feed lists the keys, and the notes of refusals.
		if n := st.lists.Load(); n < seconds || n > 2*(seconds+2) {
			t.Errorf("%d listings in %d seconds", n, seconds)
		}
		if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / streams; each > 8<<10 {
			t.Errorf("%d bytes for a stream", each)
		}
		status, body := serve(t.Context(), srv, path("a/b", "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1h"}`)
		if status != http.StatusOK {
			t.Errorf("an acquire beside the streams: %d %s", status, body)
		}
		end()
		all.Wait()
		srv.Drain()
	})
}
