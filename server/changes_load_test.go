package server

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/tenure"
)

// hanging is a store whose listings hang.
type hanging struct {
	*mem.Store
	begun chan struct{}
}

func (h hanging) List(ctx context.Context, _ string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		h.begun <- struct{}{}
		<-ctx.Done()
		yield(tenure.Record{}, ctx.Err())
	}
}

// TestStreamsThatCannotBeginHoldUpNoCalls: while the first look hangs, clients
// renew, and a client that leaves takes its stream along.
func TestStreamsThatCannotBeginHoldUpNoCalls(t *testing.T) {
	t.Parallel()
	st := hanging{mem.New(nil), make(chan struct{}, 16)}
	srv := New(st, &Options{MaxCalls: 1})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	open := func(ctx context.Context) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			srv.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
		}()
		return done
	}
	first := open(ctx)
	<-st.begun
	status, body := serve(t.Context(), srv, path("a/b", "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1h"}`)
	if status != http.StatusOK {
		t.Errorf("an acquire beside a stream that begins: %d %s", status, body)
	}
	gone, leave := context.WithCancel(t.Context())
	second := open(gone)
	leave()
	select {
	case <-second:
	case <-time.After(testenv.Patience):
		t.Fatal("a stream waits for another although its client has left")
	}
	end()
	<-first
	srv.Drain()
}

// stuckReader is a client that takes the beginning of a stream and then nothing
// more.
type stuckReader struct {
	*httptest.ResponseRecorder
	takes int // so many parts
	end   context.Context
}

func (s *stuckReader) Write(b []byte) (int, error) {
	if s.takes--; s.takes < 0 {
		<-s.end.Done()
		runtime.KeepAlive(b) // as a connection does
		return 0, s.end.Err()
	}
	return s.ResponseRecorder.Write(b)
}

// TestSlowStreamsShareOneBatch: a client that does not read costs the server no
// copy of the changes.
func TestSlowStreamsShareOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, changes = 200, 1000
		st := mem.New(nil)
		defer st.Close()
		srv := New(st, &Options{Heartbeat: time.Hour})
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				w := &stuckReader{httptest.NewRecorder(), 1, ctx}
				srv.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
			})
		}
		synctest.Wait()
		for i := range changes {
			q := operate(tenure.Takeover, fmt.Sprintf("a/%d", i))
			q.Note = fmt.Sprintf("%01000d", i)
			if a := st.Apply(ctx, []tenure.Request{q})[0]; a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		time.Sleep(5 * time.Second) // the time of the bubble
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > streams*changes*100 {
			t.Errorf("%d slow streams keep %d bytes of %d changes", streams, grown, changes)
		}
		end()
		all.Wait()
		srv.Drain()
	})
}

// TestStreamsThatResumeAreFew: each keeps the changes that it missed until its
// client has read them. So a client that does not read may have few of them.
func TestStreamsThatResumeAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(nil)
		defer st.Close()
		srv := New(st, &Options{Access: rules{"ann": "a/", "bob": "a/"}, Heartbeat: time.Hour})
		ctx, end := context.WithCancel(t.Context())
		for _, a := range st.Apply(ctx, []tenure.Request{acquireOf("a/b", "ann")}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		var all sync.WaitGroup
		resume := func(name string) *stuckReader {
			w := &stuckReader{httptest.NewRecorder(), 0, ctx}
			req := as(name, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil))
			req.Header.Set("Last-Event-ID", "1")
			all.Go(func() { srv.ServeHTTP(w, req) })
			synctest.Wait()
			return w
		}
		for range maxLists / 2 {
			if w := resume("ann"); w.Code != http.StatusOK {
				t.Fatalf("%d", w.Code)
			}
		}
		if w := resume("ann"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one client resumes more than half of the streams: %d", w.Code)
		}
		if w := resume("bob"); w.Code != http.StatusOK {
			t.Errorf("another client: %d", w.Code)
		}
		end()
		all.Wait()
		srv.Drain()
	})
}

// TestLooksThatFailForLongKeepLittle: with a damaged record in the store, no
// look is whole, and each begins where the last whole one ended.
func TestLooksThatFailForLongKeepLittle(t *testing.T) {
	t.Parallel()
	start := time.Now()
	f := &feed{mark: start, seen: map[seenChange]time.Time{}, woken: make(chan struct{})}
	toldAll := false
	for i := range 10 {
		now := start.Add(time.Duration(i) * time.Minute)
		b := news{mark: now}
		for n := range maxChanges {
			if i < 4 {
				b.miss(fmt.Sprint(n))
			} else {
				b.changes = append(b.changes, wire.Change{Key: "a", Token: fence.Token(n), Time: now})
			}
		}
		f.add(t.Context(), b, false)
		toldAll = toldAll || f.batches[len(f.batches)-1].all
		if len(f.seen) > maxSeen+maxChanges || len(f.batches) > 2 {
			t.Fatalf("after %d looks: %d changes and %d batches are kept", i+1, len(f.seen), len(f.batches))
		}
	}
	if !toldAll {
		t.Error("the streams are not told that changes are left out")
	}
}
