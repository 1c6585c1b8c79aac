package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func contexts() []check {
	return []check{
		{"a context that has ended: unknown, and it says so", endedContext},
		{"law 6: what a cancelled batch left is resolved by asking again", cancelledBatch},
	}
}

func endedContext(t *trial) {
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	late, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Hour))
	defer cancel()
	for i, ctx := range []context.Context{ended, late} {
		var requests []tenure.Request
		for n := range 3 {
			requests = append(requests, acquire(fmt.Sprintf("contexts/ended/%d/%d", i, n), "ann"))
		}
		answers := t.store.Apply(ctx, requests)
		if len(answers) != len(requests) {
			t.Fatalf("%d requests got %d answers", len(requests), len(answers))
		}
		for n, a := range answers {
			t.knownOrEnded(ctx, requests[n], a)
			t.must(requests[n]) // asking again settles it
		}
		if _, err := t.store.Get(ctx, requests[0].Key); err != nil && !errors.Is(err, ctx.Err()) {
			t.Fatalf("Get under an ended context: %v, which hides %v", err, ctx.Err())
		}
		if _, err := t.store.Now(ctx); err != nil && !errors.Is(err, ctx.Err()) {
			t.Fatalf("Now under an ended context: %v, which hides %v", err, ctx.Err())
		}
		listed := 0
		for _, err := range t.store.List(ctx, "contexts/ended/"+fmt.Sprint(i)) {
			if err == nil {
				listed++
				continue
			}
			listed = -1
			if !errors.Is(err, ctx.Err()) {
				t.Fatalf("List under an ended context: %v, which hides %v", err, ctx.Err())
			}
		}
		if listed >= 0 && listed < 3 {
			t.Fatalf("List under an ended context yields %d of 3 keys and no error", listed)
		}
	}
}

// knownOrEnded checks an answer under a context that has ended. It must be the
// law's answer, or unknown.
func (t *trial) knownOrEnded(ctx context.Context, req tenure.Request, a store.Answer) {
	t.Helper()
	switch {
	case a.Err == nil:
		if a.Record.Grant != req.Secret.Grant() {
			t.Fatalf("%s of %q succeeded and the record is of another grant", req.Verb, req.Key)
		}
	case !errors.Is(a.Err, store.ErrUnknown):
		t.Fatalf("%s of %q under an ended context: %v, want an error matching store.ErrUnknown",
			req.Verb, req.Key, a.Err)
	case !errors.Is(a.Err, ctx.Err()):
		t.Fatalf("%s of %q under an ended context: %v, which hides %v", req.Verb, req.Key, a.Err, ctx.Err())
	case !a.Record.IsZero():
		t.Fatalf("%s of %q is unknown and has a record: %+v", req.Verb, req.Key, a.Record)
	}
}

// cancelledBatch ends the context while a batch is under way. Some requests
// have taken effect, some have not, and some will later.
func cancelledBatch(t *trial) {
	for round := range t.many(20, 4, 6) {
		var requests []tenure.Request
		for n := range t.many(100, 15, 40) {
			requests = append(requests, acquire(fmt.Sprintf("contexts/batch/%d/%d", round, n), "ann"))
		}
		ctx, cancel := context.WithTimeout(t.ctx, time.Duration(t.rand.Int64N(int64(2*time.Millisecond))))
		answers := t.store.Apply(ctx, requests)
		<-ctx.Done()
		if len(answers) != len(requests) {
			t.Fatalf("%d requests got %d answers", len(requests), len(answers))
		}
		for n, a := range answers {
			t.knownOrEnded(ctx, requests[n], a)
		}
		cancel()
		for n, req := range requests {
			again := t.resolve(t.store, req)
			if again.Err != nil || again.Record.Terms != 1 {
				t.Fatalf("asked again: %v in term %d; want the one grant", again.Err, again.Record.Terms)
			}
			if first := answers[n]; first.Err == nil && first.Record.Token != again.Record.Token {
				t.Fatalf("answered with token %d, asked again %d", first.Record.Token, again.Record.Token)
			}
		}
	}
}
