package worktest

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/croft-dev/croft/work"
)

func adding() []check {
	return []check{
		{"an item is kept as it was given", func(t *trial) {
			req := added("q/all")
			req.Priority, req.Limit, req.Unique = -7, 3, "order 12 ✓"
			req.Payload = []byte{0, 1, 255, '\n', '"', '\''}
			a := t.must(req)
			if it := t.get(a.Item.ID); it.State != work.Waiting || !bytes.Equal(it.Payload, req.Payload) {
				t.Fatalf("kept %+v", it)
			}
			t.must(added("q"))
			t.must(work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}) // no payload at all
		}},
		{"a delay and a not-before time are kept by the ledger's clock", func(t *trial) {
			req := added("q")
			req.Delay = long
			t.must(req)
			req = added("q")
			req.NotBefore = t.now().Add(long).In(time.FixedZone("east", 3600))
			t.must(req)
			req = added("q")
			req.NotBefore = t.now().Add(-long)
			t.must(req)
			req = added("q")
			req.NotBefore = t.now().Add(2 * work.MaxDelay)
			t.step(req)
		}},
		{"adding again after a lost reply adds nothing", func(t *trial) {
			req := added("q")
			t.must(req)
			if a := t.must(req); !a.Repeated {
				t.Fatalf("the second add of one id is not Repeated")
			}
			req.Payload = []byte("other")
			if a := t.step(req); !errors.Is(a.Err, work.ErrConflict) {
				t.Fatalf("one id for other content: %v, want a conflict", a.Err)
			}
		}},
		{"an idempotency key names one item of its queue", func(t *trial) {
			first := added("q")
			first.Unique = "order 1"
			t.must(first)
			second := first
			second.ID = work.NewID()
			if a := t.must(second); a.Item.ID != first.ID || !a.Repeated {
				t.Fatalf("the same key and content: got item %s, want %s again", a.Item.ID, first.ID)
			}
			for _, change := range []func(r *work.Request){
				func(r *work.Request) { r.Payload = []byte("other") },
				func(r *work.Request) { r.Priority = 9 },
				func(r *work.Request) { r.Limit = 2 },
			} {
				other := second
				change(&other)
				if a := t.step(other); !errors.Is(a.Err, work.ErrConflict) {
					t.Fatalf("the same key for other content: %v, want a conflict", a.Err)
				}
			}
			elsewhere := second
			elsewhere.ID, elsewhere.Queue = work.NewID(), "other"
			if a := t.must(elsewhere); a.Repeated {
				t.Fatalf("the key of one queue stood in the way in another")
			}
			later := first // a delay is no content: a caller that tries again may send another
			later.ID, later.Delay = work.NewID(), time.Minute
			t.must(later)
		}},
		{"an idempotency key holds after the item is done", func(t *trial) {
			req := added("q")
			req.Unique = "once"
			t.must(req)
			t.must(t.claimed("q", long).by(work.Complete))
			again := req
			again.ID = work.NewID()
			if a := t.must(again); a.Item.State != work.Done || a.Item.ID != req.ID {
				t.Fatalf("got item %s, %s; want the one that is done", a.Item.ID, a.Item.State)
			}
		}},
		{"bad input is named and changes nothing", func(t *trial) {
			for name, spoil := range map[string]func(r *work.Request){
				"an oversized payload":    func(r *work.Request) { r.Payload = make([]byte, work.MaxPayload+1) },
				"a negative delay":        func(r *work.Request) { r.Delay = -time.Second },
				"no queue":                func(r *work.Request) { r.Queue = "" },
				"a queue that is no key":  func(r *work.Request) { r.Queue = "a//b" },
				"a long queue":            func(r *work.Request) { r.Queue = strings.Repeat("q", work.MaxQueue+1) },
				"a bad id":                func(r *work.Request) { r.ID = "17" },
				"a negative limit":        func(r *work.Request) { r.Limit = -1 },
				"a huge priority":         func(r *work.Request) { r.Priority = 1 << 20 },
				"a control character":     func(r *work.Request) { r.Unique = "a\x00b" },
				"a long key":              func(r *work.Request) { r.Unique = strings.Repeat("k", work.MaxUnique+1) },
				"two times to begin":      func(r *work.Request) { r.Delay, r.NotBefore = time.Second, t.now() },
				"a verb that there isn't": func(r *work.Request) { r.Verb = "steal" },
			} {
				req := added("q")
				spoil(&req)
				if a := t.step(req); !errors.Is(a.Err, work.ErrInvalid) {
					t.Fatalf("%s: %v, want invalid", name, a.Err)
				}
			}
			if n := len(t.all()); n > 0 {
				t.Fatalf("bad input has left %d items", n)
			}
		}},
		{"the largest payload is taken", func(t *trial) {
			req := added(strings.Repeat("q", work.MaxQueue))
			req.Payload, req.Unique = bytes.Repeat([]byte("x"), work.MaxPayload), strings.Repeat("k", work.MaxUnique)
			t.must(req)
			t.claimed(req.Queue, long)
		}},
	}
}
