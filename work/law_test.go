package work

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/tenure"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// life is one item under random requests.
type life struct {
	t       *rapid.T
	it      Item
	now     time.Time
	effects map[EffectID]Effect
	secrets []tenure.Secret
}

func draw[T any](l *life, name string, of ...T) T { return rapid.SampledFrom(of).Draw(l.t, name) }

// secret returns a new secret or, more often, one used before.
func (l *life) secret() tenure.Secret {
	if n := len(l.secrets); n > 0 && rapid.IntRange(0, 3).Draw(l.t, "old") > 0 {
		return l.secrets[n-1-rapid.IntRange(0, min(n-1, 4)).Draw(l.t, "which")]
	}
	l.secrets = append(l.secrets, tenure.NewSecret())
	return l.secrets[len(l.secrets)-1]
}

func (l *life) request() Request {
	req := Request{
		Verb: draw(l, "verb", Verbs[1:]...), ID: l.it.ID, Secret: l.secret(), Token: max(l.it.Record.Token-fence.Token(draw(l, "behind", 0, 0, 0, 1)), 1),
		Owner: draw(l, "owner", "ann", "bob"), Actor: "olga", Note: "because", Again: draw(l, "again", false, true),
		Delay: draw(l, "delay", 0, time.Second), Final: draw(l, "final", false, false, true), Result: []byte(draw(l, "result", "1", "2")),
	}
	if req.Verb == Complete {
		req.Effects = []Emission{{Name: draw(l, "effect", "x", "y")}}
	}
	return req
}

// step makes one random claim or request, and checks its outcome.
func (l *life) step() {
	was := l.it
	if rapid.IntRange(0, 3).Draw(l.t, "claim") == 0 {
		c := Claim{Queues: []string{"q"}, Limit: 1, Secret: l.secret(), Owner: draw(l, "claimant", "ann", "bob"), TTL: time.Minute}
		next, err := Grant(was, c, l.now)
		if err == nil && (next.Record.Token <= was.Record.Token || next.Attempts != was.Attempts+1 || !c.Granted(next)) {
			l.t.Fatalf("granted %+v", next)
		}
		l.it = next
	} else {
		l.apply(l.request())
	}
	l.holds(was)
	l.now = l.now.Add(draw(l, "passes", 0, time.Second, time.Minute, 20*time.Minute))
}

func (l *life) apply(req Request) {
	was := l.it
	out, err := Apply(was, req, l.now)
	switch {
	case err != nil && (out.Changed || len(out.Effects) > 0 || !reflect.DeepEqual(out.Item, was)):
		l.t.Fatalf("%s was refused (%v) and changes %+v", req.Verb, err, out)
	case err == nil && out.Refusal != nil, errors.Is(err, fence.ErrStale) && req.Verb != Requeue && out.Refusal == nil:
		l.t.Fatalf("%s: %v with the refusal %+v", req.Verb, err, out.Refusal)
	case len(out.Effects) > 0 && (req.Verb != Complete || !out.Changed):
		l.t.Fatalf("%s writes effects", req.Verb)
	}
	if out.Changed && (req.Verb.ByHand() || req.Verb == Requeue) && out.Item.Record.Token <= was.Record.Token {
		l.t.Fatalf("%s burned no token", req.Verb)
	}
	for _, e := range out.Effects {
		if _, twice := l.effects[e.EffectID]; twice {
			l.t.Fatalf("%s writes %s a second time", req.Verb, e.EffectID)
		}
		l.effects[e.EffectID] = e
	}
	if was.State == Done && out.Changed && !req.Again {
		l.t.Fatalf("%s changes what is done", req.Verb)
	}
	l.it = out.Item
	if err == nil && slices.Contains([]Verb{Complete, Fail, Release, Cancel, Reassign, Replay, Requeue}, req.Verb) { // the reply was lost
		if again, err := Apply(l.it, req, l.now.Add(time.Second)); err != nil || again.Changed {
			l.t.Fatalf("%s again: %v, changed %v", req.Verb, err, again.Changed)
		}
	}
}

// holds checks what must be true after every step.
func (l *life) holds(was Item) {
	rec := l.it.Record
	if rec.Token < was.Record.Token {
		l.t.Fatalf("the token went back from %d to %d", was.Record.Token, rec.Token)
	}
	if !rec.IsZero() {
		if err := rec.Check(); err != nil {
			l.t.Fatal(err)
		}
		bare := rec
		bare.History = nil
		if whole := terms.Join(bare, terms.Past(rec)); !reflect.DeepEqual(whole, rec) {
			l.t.Fatalf("rejoined %+v, was %+v", whole, rec)
		}
		if rec.Every != 0 || !rec.Succeeded.IsZero() || !rec.HoldUntil.IsZero() || rec.Guards != nil {
			l.t.Fatalf("a field that ledgers do not keep is set: %+v", rec)
		}
	}
	if (l.it.State == Running) != (rec.State == tenure.Held) || l.it.State.Finished() == l.it.Finished.IsZero() {
		l.t.Fatalf("the item is %s, its record %s, finished %s", l.it.State, rec.State, l.it.Finished)
	}
}

// TestTheLawHoldsOfAnyLife: no sequence of requests breaks the law.
func TestTheLawHoldsOfAnyLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		out, err := Apply(Item{}, Request{Verb: Add, ID: NewID(), Queue: "q", Limit: 3}, start)
		if err != nil {
			t.Fatal(err)
		}
		l := &life{t: t, it: out.Item, now: start, effects: map[EffectID]Effect{}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l.step()
		}
	})
}

// TestIdentitiesReadBack: identities can be parsed from the text that people
// and receivers get.
func TestIdentitiesReadBack(t *testing.T) {
	for _, name := range []string{"charge", "mail/customer ✓", "a:b", " %"} {
		id := EffectID{Item: NewID(), Name: name, Generation: 3}
		if back, err := ParseEffectID(id.String()); err != nil || back != id {
			t.Errorf("%q: %+v, %v", id, back, err)
		}
	}
	for _, bad := range []string{"", "x", "x:0:y", string(NewID()) + ":01:x", string(NewID()) + ":-1:x", string(NewID()) + ":0:"} {
		if _, err := ParseEffectID(bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
	it := Item{ID: NewID(), Queue: "a/b", Record: tenure.Record{Token: 7, TTL: time.Minute}}
	if queue, id, err := ItemOf(it.Deed(tenure.NewSecret())); err != nil || queue != "a/b" || id != it.ID {
		t.Errorf("the deed is for %q, %q: %v", queue, id, err)
	}
	if _, _, err := ItemOf(tenure.Deed{Key: "reports/daily"}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a deed that is of no item: %v", err)
	}
}

// TestIDsAreUniqueAndInTheOrderOfTime: IDs grow with time, so that indexes grow
// at their end.
func TestIDsAreUniqueAndInTheOrderOfTime(t *testing.T) {
	var ids []ID
	for i := range 1000 {
		var alone sequence
		ids = append(ids, alone.next(start.Add(time.Duration(i)*time.Millisecond)))
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 1000 || !ids[0].Valid() {
		t.Errorf("%s … %s", ids[0], ids[999])
	}
}

// TestIDsOfOneProcessRise: more in a millisecond than its bits can count, and
// through a clock that steps back.
func TestIDsOfOneProcessRise(t *testing.T) {
	var one sequence
	last := one.next(start)
	for i := range 20000 {
		next := one.next(start.Add(time.Duration(-i) * time.Microsecond))
		if next <= last || !next.Valid() {
			t.Fatalf("ID %d is %s, after %s", i, next, last)
		}
		last = next
	}
	if later := one.next(start.Add(time.Minute)); later <= last || later[:12] == last[:12] {
		t.Errorf("a minute later: %s after %s", later, last)
	}
}

// TestBackoffGrowsAndIsBounded: backoffs also differ between items.
func TestBackoffGrowsAndIsBounded(t *testing.T) {
	id, seen := NewID(), map[time.Duration]bool{}
	for n := range 30 {
		d := Backoff(id, n)
		if d < BackoffLeast || d > BackoffMost+BackoffMost/4 || n > 12 && d < BackoffMost {
			t.Errorf("after attempt %d: %s", n, d)
		}
	}
	for range 100 {
		seen[Backoff(NewID(), 5)] = true
	}
	if len(seen) < 20 {
		t.Errorf("100 items have %d backoffs", len(seen))
	}
}
