package terms_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/tenure"
)

// TestARecordHasItsNewestTermTwice: whatever the law makes of a record, its
// fields say what the newest term in its history says.
func TestARecordHasItsNewestTermTwice(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	verbs := []tenure.Verb{
		tenure.Acquire, tenure.Acquire, tenure.Renew, tenure.Report, tenure.Release,
		tenure.Takeover, tenure.Reserve, tenure.Revoke,
	}
	rec, secret, ended := tenure.Record{}, tenure.NewSecret(), 0
	for range 3000 {
		now = now.Add(time.Duration(rand.IntN(100)) * time.Second)
		req := tenure.Request{
			Verb: verbs[rand.IntN(len(verbs))], Key: "jobs/a", Secret: secret, Owner: "ann", Instance: "one",
			TTL: time.Minute, Failed: rand.IntN(2) == 0,
		}
		if req.Verb == tenure.Acquire || req.Verb.ByHand() {
			req.Secret = tenure.NewSecret()
		}
		if req.Verb.ByHand() {
			req.Actor, req.Note = "olga", "because"
		}
		next, _, err := tenure.Apply(rec, req, now)
		if err != nil {
			continue
		}
		if req.Verb == tenure.Acquire || req.Verb.ByHand() {
			secret = req.Secret
		}
		rec = next
		bare := rec
		bare.History = nil
		if got := terms.Join(bare, terms.Past(rec)); !reflect.DeepEqual(got, rec) {
			t.Fatalf("after %s: joined %+v, want %+v", req.Verb, got, rec)
		}
		if rec.Ended != "" {
			ended++
		}
	}
	if ended == 0 || len(rec.History) != tenure.HistoryLen {
		t.Errorf("%d releases and %d terms: the test has tried nothing", ended, len(rec.History))
	}
	if got := terms.Join(tenure.Record{}, nil); !got.IsZero() || got.History != nil {
		t.Errorf("a zero record becomes %+v", got)
	}
}
