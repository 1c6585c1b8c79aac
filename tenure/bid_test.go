package tenure_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// awarding is the law, with every Acquire turned into a bid and awarded.
func awarding(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
	if q.Verb == tenure.Acquire && q.Check() == nil {
		return tenure.Award(rec, q.Bid(), now)
	}
	return tenure.Apply(rec, q, now)
}

// TestABidIsDecidedAsItsRequest plays random scenarios: Award and Apply must
// give the same answers, and the laws must hold.
func TestABidIsDecidedAsItsRequest(t *testing.T) {
	t.Parallel()
	same := func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		next, changed, err := awarding(rec, q, now)
		want, should, why := tenure.Apply(rec, q, now)
		if !reflect.DeepEqual(next, want) || changed != should || !reflect.DeepEqual(err, why) {
			t.Errorf("%s at %s: awarded %+v, %v, %v; applied %+v, %v, %v", q.Verb, now, next, changed, err, want, should, why)
		}
		return next, changed, err
	}
	rapid.Check(t, func(t *rapid.T) {
		if err := verdict(same, tenure.Record.Droppable, scenarios(true).Draw(t, "scenario"), true); err != nil {
			t.Fatal(err)
		}
	})
}

// TestABidHasNoSecret: making a bid drops the secret, and Award refuses a bid
// that has a secret or is not an Acquire.
func TestABidHasNoSecret(t *testing.T) {
	q := ask("acquire", "ann")
	bid := q.Bid()
	if bid.Request.Secret != "" || bid.Grant != q.Secret.Grant() {
		t.Errorf("the bid is %+v", bid)
	}
	if err := bid.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*tenure.Bid){
		"with its secret":  func(b *tenure.Bid) { b.Request.Secret = q.Secret },
		"of a release":     func(b *tenure.Bid) { b.Request.Verb = tenure.Release },
		"without a grant":  func(b *tenure.Bid) { b.Grant = "" },
		"without a key":    func(b *tenure.Bid) { b.Request.Key = "" },
		"without an owner": func(b *tenure.Bid) { b.Request.Owner = " " },
		"without a TTL":    func(b *tenure.Bid) { b.Request.TTL = 0 },
	} {
		bad := q.Bid()
		spoil(&bad)
		if next, changed, err := tenure.Award(tenure.Record{}, bad, noon); !errors.Is(err, fence.ErrInvalid) || changed || !next.IsZero() {
			t.Errorf("a bid %s: %+v, %v, %v", name, next, changed, err)
		}
	}
}
