package steward_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// breaking is a ledger whose first completion gets no answer. It was committed
// or not, as the test says.
type breaking struct {
	work.Ledger
	commit bool
	once   sync.Once
}

func (b *breaking) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	broken := false
	if slices.ContainsFunc(requests, func(q work.Request) bool { return q.Verb == work.Complete }) {
		b.once.Do(func() { broken = true })
	}
	if !broken {
		return b.Ledger.Apply(ctx, requests)
	}
	if b.commit {
		b.Ledger.Apply(ctx, requests)
	}
	return work.FailedAnswers(len(requests), errors.New("the connection broke in the commit"))
}

// hooked is a webhook receiver that keeps requests by Idempotency-Key. got
// returns a copy, because deliveries may still come.
func hooked(t *testing.T) (url string, got func() map[string][]string) {
	var mu sync.Mutex
	seen := map[string][]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		key := req.Header.Get(steward.HeaderKey)
		seen[key] = append(seen[key], string(body))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		all := map[string][]string{}
		for key, bodies := range seen {
			all[key] = slices.Clone(bodies)
		}
		return all
	}
}

// TestACompletionWhoseCommitWasLostIsOneIdempotencyKey: the same worker or the
// next owner attempts the item again, and the lost commit counted or not. In
// each case the receiver sees one key and one body.
func TestACompletionWhoseCommitWasLostIsOneIdempotencyKey(t *testing.T) {
	for _, c := range []struct {
		name         string
		commit, dies bool
	}{
		{"the reply was lost, the worker asks again", true, false},
		{"the commit was lost, the worker asks again", false, false},
		{"the reply was lost, and the worker died", true, true},
		{"the commit was lost, and the worker died", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			url, got := hooked(t)
			id := work.NewID()
			o.apply(work.Request{Verb: work.Add, ID: id, Queue: "orders"})
			ledger := &breaking{Ledger: o.l, commit: c.commit}

			// ann completes, and does not hear whether it counts.
			first, body := o.attempt(ledger, id, "ann")
			if !errors.Is(first.Err, store.ErrUnknown) {
				t.Fatalf("the first attempt: %v, want unknown", first.Err)
			}
			if !c.dies {
				second := ledger.Apply(t.Context(), []work.Request{body})[0]
				if second.Err != nil || second.Repeated != c.commit {
					t.Fatalf("asked again: %+v", second)
				}
			} else { // when ann's lease has lapsed, bob does the item if it is not done
				deadline := time.Now().Add(patience)
				for o.state(id) == work.Running && time.Now().Before(deadline) {
					o.reconcile(nil)
				}
				if o.state(id) == work.Waiting {
					o.apply(work.Request{
						Verb: work.RunNow, ID: id, Secret: tenure.NewSecret(), Actor: "olga", Note: "no need to wait",
					})
					if a, _ := o.attempt(ledger, id, "bob"); a.Err != nil {
						t.Fatal(a.Err)
					}
				}
			}
			o.dispatch(o.l, map[string]steward.Deliverer{"charge": steward.Webhook{URL: url}}, nil)
			o.eventually(id, work.Sent)

			// ann comes back and sends the same completion again.
			late := o.l.Apply(t.Context(), []work.Request{body})[0]
			if bob := c.dies && !c.commit; bob != errors.Is(late.Err, fence.ErrStale) || !bob && !late.Repeated {
				t.Errorf("a late copy of the completion: %+v", late)
			}
			it, err := o.l.Get(t.Context(), id)
			if err != nil || it.State != work.Done {
				t.Fatalf("the item is %s: %v", it.State, err)
			}
			key := work.EffectID{Item: id, Name: "charge"}.String()
			if all := got(); len(all) != 1 || !slices.Equal(all[key], []string{string(it.Result)}) {
				t.Errorf("the receiver saw %q, want %q once under %s", all, it.Result, key)
			}
		})
	}
}

// attempt claims the item and completes it with a result that names its owner.
func (o *office) attempt(l work.Ledger, id work.ID, owner string) (work.Answer, work.Request) {
	o.Helper()
	c := work.Claim{Queues: []string{"orders"}, Limit: 1, Secret: tenure.NewSecret(), Owner: owner, TTL: 100 * time.Millisecond}
	items, err := l.Claim(o.Context(), c)
	if err != nil || len(items) != 1 || items[0].ID != id {
		o.Fatalf("the claim of %s: %v, %v", owner, items, err)
	}
	body := []byte("charged by " + owner)
	req := work.Request{Verb: work.Complete, ID: id, Token: items[0].Record.Token, Secret: c.Secret, Result: body, Effects: []work.Emission{{Name: "charge", Body: body}}}
	return l.Apply(o.Context(), []work.Request{req})[0], req
}
