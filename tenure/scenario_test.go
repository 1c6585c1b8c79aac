package tenure_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// law decides requests, as tenure.Apply does. verdict takes any law, so that
// the tests can show that it rejects broken ones.
type law func(tenure.Record, tenure.Request, time.Time) (tenure.Record, bool, error)

// step is one event in the life of a key. It refers to earlier events ("the
// newest grant", "just before the deadline"), so that random steps make
// sensible stories.
type step struct {
	// First the clock moves: to this moment of the record, if one is named, and
	// then by Move.
	Moment string
	Move   time.Duration
	// Then comes one event. request: a new request. copy: an earlier request
	// arrives again. drop: the store forgets the record if it may. wipe: the
	// store forgets it anyway.
	Event string
	Verb  tenure.Verb
	// Whose says whose secret a request carries, counted back from the newest:
	// 0 is a new one, 1 the one used last. Late does the same for copies.
	Whose, Late int
	Owner       string
	TTL         time.Duration
	Above       string
	Every       time.Duration
	HoldFor     time.Duration
	Resume      bool
	Failed      bool
}

// retention is how long the store of a scenario keeps a record after Quiet.
const retention = 24 * time.Hour

var (
	moves   = []time.Duration{0, 0, time.Microsecond, time.Millisecond, time.Second, 20 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 13 * time.Hour, 49 * time.Hour}
	steps   = []time.Duration{-time.Microsecond, -time.Second, -time.Minute, -time.Hour, -30 * time.Hour}
	moments = []string{"", "", "", "deadline", "deadline", "hold", "period", "half", "quiet"}
	nearby  = []time.Duration{-time.Microsecond, 0, time.Microsecond}
	events  = append(slices.Repeat([]string{"request"}, 16), "copy", "copy", "copy", "drop", "drop", "wipe")
	verbs   = []tenure.Verb{
		tenure.Acquire, tenure.Acquire, tenure.Acquire, tenure.Acquire, tenure.Renew, tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release, tenure.Release,
		tenure.Takeover, tenure.Reserve, tenure.Revoke,
	}
)

// scenarios draws random stories. In a steady one the clock only goes forward,
// otherwise it also steps back. Some stories are about a job that is acquired
// and released, with holds and periods. In most, anybody does anything.
func scenarios(steady bool) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		job := rapid.IntRange(0, 2).Draw(t, "job") == 0
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			s := anyStep(t, steady)
			if job && s.Event == "request" {
				s.Verb = rapid.SampledFrom([]tenure.Verb{tenure.Acquire, tenure.Acquire, tenure.Release, s.Verb}).Draw(t, "job's verb")
				s.Every, s.HoldFor = 24*time.Hour, 2*time.Minute
				if s.Verb == tenure.Release {
					s.Whose, s.Move, s.Moment = 1, 0, ""
				}
			}
			return s
		}), 20, 60).Draw(t, "steps")
	})
}

func anyStep(t *rapid.T, steady bool) step {
	s := step{
		Moment: rapid.SampledFrom(moments).Draw(t, "moment"),
		Event:  rapid.SampledFrom(events).Draw(t, "event"),
		Verb:   rapid.SampledFrom(verbs).Draw(t, "verb"),
		Late:   rapid.IntRange(1, 20).Draw(t, "late"),
		Owner:  rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner"),
		TTL:    rapid.SampledFrom([]time.Duration{tenure.MinTTL, time.Second, time.Minute, time.Hour}).Draw(t, "ttl"),
		Above:  rapid.SampledFrom([]string{"", "", "", "", "below", "newest", "far"}).Draw(t, "above"),
		Resume: rapid.Bool().Draw(t, "resume"),
		Failed: rapid.Bool().Draw(t, "failed"),
	}
	switch {
	case s.Moment != "":
		s.Move = rapid.SampledFrom(nearby).Draw(t, "nearby")
	case !steady && rapid.IntRange(0, 4).Draw(t, "back") == 0:
		s.Move = rapid.SampledFrom(steps).Draw(t, "step")
	default:
		s.Move = rapid.SampledFrom(moves).Draw(t, "move")
	}
	// Claims mostly carry a new secret. Other requests mostly come from the
	// holder.
	if s.Verb == tenure.Acquire || s.Verb.ByHand() {
		s.Whose = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 1, 2, 3}).Draw(t, "whose")
		s.Every = rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 24 * time.Hour}).Draw(t, "every")
		s.HoldFor = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Minute, 2 * time.Hour}).Draw(t, "hold")
	} else {
		s.Whose = rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1, 2, 2, 3, 9}).Draw(t, "whose")
	}
	return s
}

// world is a key's record, its store's clock, and the requests so far.
type world struct {
	rec     tenure.Record
	now     time.Time
	secrets []tenure.Secret
	granted []tenure.Secret // those that were granted, in order
	asked   []tenure.Request
	newest  fence.Token // the highest token ever issued, also if the store has forgotten it
}

// tick moves the clock. A steady clock never steps back: it stays where it is.
func (w *world) tick(s step, steady bool) {
	to := w.now
	switch s.Moment {
	case "deadline":
		to = w.rec.Deadline
	case "hold":
		to = w.rec.HoldUntil
	case "period":
		to = w.rec.Due(w.rec.Every)
	case "half": // of the period since the last success
		to = w.rec.Succeeded.Add(w.rec.Every / 2)
	case "quiet":
		to = w.rec.Quiet().Add(retention)
	}
	to = to.Add(s.Move)
	// Even a stepping clock stays within the years for which tokens are made.
	if (steady && to.Before(w.now)) || to.Before(noon.AddDate(-1, 0, 0)) || to.After(noon.AddDate(5, 0, 0)) {
		return
	}
	w.now = to
}

// request makes the request that a step describes.
func (w *world) request(s step) tenure.Request {
	secrets := w.secrets
	if !(s.Verb == tenure.Acquire || s.Verb.ByHand()) {
		secrets = w.granted // verbs other than claims are about grants
	}
	secret := secretOf(fmt.Sprint("secret ", len(w.secrets)))
	if s.Whose > 0 && s.Whose <= len(secrets) {
		secret = secrets[len(secrets)-s.Whose]
	} else {
		w.secrets = append(w.secrets, secret)
	}
	q := tenure.Request{
		Verb: s.Verb, Key: key, Secret: secret, Owner: s.Owner, Instance: s.Owner + "#1", TTL: s.TTL, Every: s.Every, HoldFor: s.HoldFor,
		Resume: s.Resume, Failed: s.Failed, Progress: s.Moment, Checkpoint: fmt.Sprintf("page %d\xff", len(w.asked)),
	}
	if q.Verb.ByHand() {
		q.Actor, q.Note = "opal", fmt.Sprint("reason ", len(w.asked))
	} else {
		q.Guards = []string{"/srv/" + s.Owner}
	}
	if q.Verb == tenure.Renew && s.Failed {
		q.TTL = 0
	}
	switch s.Above {
	case "below":
		q.Above = max(w.newest-1, 0)
	case "newest":
		q.Above = w.newest
	case "far":
		q.Above = min(w.newest+fence.Token(72*time.Hour/time.Microsecond), tenure.MaxAbove)
	}
	return q
}

// verdict plays a scenario under a law and returns the first fault that the
// judge finds, or nil.
func verdict(decide law, droppable func(tenure.Record, time.Time, time.Duration) bool, scenario []step, steady bool) error {
	w := &world{now: noon}
	j := &judge{steady: steady}
	for i, s := range scenario {
		w.tick(s, steady)
		j.clock(w.now)
		switch s.Event {
		case "wipe":
			w.rec = tenure.Record{}
			j.wiped()
			continue
		case "drop":
			if !w.rec.IsZero() && droppable(w.rec, w.now, retention) {
				w.rec = tenure.Record{}
				j.dropped()
			}
			continue
		}
		q := w.request(s)
		if s.Event == "copy" && s.Late <= len(w.asked) {
			q = w.asked[len(w.asked)-s.Late]
		}
		w.asked = append(w.asked, q)
		before := clone(w.rec)
		next, changed, err := decide(w.rec, q, w.now)
		if wrong := j.judge(decide, before, w.rec, q, w.now, next, changed, err); wrong != nil {
			return fmt.Errorf("step %d, %s of %s at %s: %w\nbefore: %+v\nafter:  %+v\nanswer: changed %v, %s", i, q.Verb, q.Secret.Grant()[:4], w.now, wrong, before, next, changed, fmt.Sprint(err))
		}
		if next.Token != w.rec.Token {
			w.granted = append(w.granted, q.Secret)
			w.newest = max(w.newest, next.Token)
		}
		w.rec = next
	}
	return nil
}
