package tenure_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// TestOnlyTheHolderIsCurrent tries stamps of past and present grants on one
// key's record.
func TestOnlyTheHolderIsCurrent(t *testing.T) {
	t.Parallel()
	step := func(rec tenure.Record, q tenure.Request, now time.Time) tenure.Record {
		t.Helper()
		next, _, err := tenure.Apply(rec, q, now)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	released, expired, taken, held := ask("acquire", "ann"), ask("acquire", "bob"), ask("acquire", "cat"), ask("acquire", "dan")
	now := noon
	rec := step(tenure.Record{}, released, now)
	ann := rec.Stamp()
	giveBack := released
	giveBack.Verb = tenure.Release
	rec = step(rec, giveBack, now)
	afterRelease := rec
	rec = step(rec, expired, now.Add(time.Second))
	bob := rec.Stamp()
	afterExpiry := rec
	now = rec.Deadline.Add(time.Second)
	rec = step(rec, taken, now)
	cat := rec.Stamp()
	revoke := tenure.Request{Verb: tenure.Revoke, Key: taken.Key, Secret: tenure.NewSecret(), Actor: "op", Note: "stuck"}
	rec = step(rec, revoke, now)
	afterRevoke := rec
	rec = step(rec, held, now)
	dan := rec.Stamp()

	invented := dan
	invented.Token++
	stranger := dan
	stranger.Grant = tenure.NewSecret().Grant()
	elsewhere := dan
	elsewhere.Key = "other"
	for _, c := range []struct {
		name  string
		rec   tenure.Record
		stamp fence.Stamp
		now   time.Time
		want  tenure.Why // "" for current
	}{
		{"the holder", rec, dan, now, ""},
		{"the holder, numbered", rec, fence.Stamp{Key: dan.Key, Token: dan.Token, Grant: dan.Grant, Seq: 7}, now, ""},
		{"the holder, at its deadline", rec, dan, rec.Deadline, tenure.WhyExpired},
		{"a holder who released", rec, ann, now, tenure.WhyReleased},
		{"a holder who released, nobody after it", afterRelease, ann, noon, tenure.WhyReleased},
		{"a holder who expired", rec, bob, now, tenure.WhySuperseded},
		{"a holder who expired, nobody after it", afterExpiry, bob, now, tenure.WhyExpired},
		{"a holder who was replaced by hand", rec, cat, now, tenure.WhyTakenOver},
		{"the grant of the revocation", afterRevoke, afterRevoke.Stamp(), now, tenure.WhyReleased},
		{"a token that was made up", rec, invented, now, tenure.WhyUnknown},
		{"a grant that was made up", rec, stranger, now, tenure.WhyUnknown},
		{"another key", rec, elsewhere, now, tenure.WhyUnknown},
		{"a key nobody knows", tenure.Record{}, dan, now, tenure.WhyUnknown},
	} {
		err := c.rec.Current(c.stamp, c.now)
		var refused *tenure.NotOwnedError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.As(err, &refused) || refused.Why != c.want):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if made := c.stamp == invented || c.stamp == stranger || c.stamp == elsewhere || c.rec.IsZero(); c.rec.Issued(c.stamp) == made {
			t.Errorf("%s: issued is %v", c.name, !made)
		}
	}
}

// TestCurrentAgreesWithRenew: in any scenario a stamp is current exactly while
// its holder could renew, with or without the record's history.
func TestCurrentAgreesWithRenew(t *testing.T) {
	t.Parallel()
	agree := func(rec tenure.Record, q tenure.Request, now time.Time) (tenure.Record, bool, error) {
		if q.Verb == tenure.Renew && !q.Resume && q.Check() == nil {
			_, _, err := tenure.Apply(rec, q, now)
			stamp := fence.Stamp{Key: q.Key, Token: rec.Token, Grant: q.Secret.Grant()}
			bare := rec
			bare.History = nil
			for _, known := range []tenure.Record{rec, bare} {
				if current := known.Current(stamp, now); (err == nil) != (current == nil) {
					t.Errorf("renew says %v, current says %v", err, current)
				}
			}
		}
		return tenure.Apply(rec, q, now)
	}
	rapid.Check(t, func(t *rapid.T) {
		if err := verdict(agree, tenure.Record.Droppable, scenarios(true).Draw(t, "scenario"), true); err != nil {
			t.Fatal(err)
		}
	})
}
