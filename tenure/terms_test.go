package tenure_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// TestEveryTermEndsAsItDid: the history says how and when the term before the
// newest ended.
func TestEveryTermEndsAsItDid(t *testing.T) {
	for _, c := range []struct {
		story    string
		ended    tenure.End
		finished time.Duration
	}{
		{"0s acquire ann; 5s release ann; 9s acquire bob", tenure.EndReleased, 5 * time.Second},
		{"0s acquire ann; 5s release+failed ann; 9s acquire bob", tenure.EndFailed, 5 * time.Second},
		{"0s acquire ann; 60s acquire bob", tenure.EndExpired, 60 * time.Second},
		{"0s acquire ann; 999s acquire bob", tenure.EndExpired, 60 * time.Second},
		{"0s acquire ann; 50s renew ann; 999s acquire bob", tenure.EndExpired, 110 * time.Second},
		{"0s acquire ann; 5s takeover opal", tenure.EndTakenOver, 5 * time.Second},
		{"0s acquire ann; 5s reserve:bob opal", tenure.EndTakenOver, 5 * time.Second},
		{"0s acquire ann; 5s revoke opal", tenure.EndTakenOver, 5 * time.Second},
		{"0s acquire ann; 60s takeover opal", tenure.EndExpired, 60 * time.Second},
		{"0s acquire ann; 99s revoke opal", tenure.EndExpired, 60 * time.Second},
		{"0s acquire ann; 5s release ann; 9s revoke opal", tenure.EndReleased, 5 * time.Second},
		{"0s takeover ann; 5s takeover opal", tenure.EndTakenOver, 5 * time.Second},
		{"0s revoke opal; 9s acquire bob", tenure.EndSuperseded, 9 * time.Second},
		{"0s revoke opal; 9s revoke otto", tenure.EndSuperseded, 9 * time.Second},
		{"0s reserve:bob opal; 9s acquire bob", tenure.EndSuperseded, 9 * time.Second},
		{"0s reserve:bob opal; 99s acquire eve", tenure.EndSuperseded, 99 * time.Second},
		{"0s reserve:bob opal; 9s reserve:eve otto", tenure.EndSuperseded, 9 * time.Second},
	} {
		rec := play(t, c.story)
		last := rec.History[len(rec.History)-2]
		if last.Ended != c.ended || !last.Finished.Equal(after(c.finished)) {
			t.Errorf("%s: it ended %q at %s, want %q at %s", c.story, last.Ended, last.Finished, c.ended, after(c.finished))
		}
		if newest := rec.History[len(rec.History)-1]; newest.Ended != "" || !newest.Finished.IsZero() {
			t.Errorf("%s: the newest term has ended: %+v", c.story, newest)
		}
	}
}

// TestALifeInCauses follows a key through many terms and compares its history.
// Terms counts the grants, not the reservations and revocations.
func TestALifeInCauses(t *testing.T) {
	rec := play(t, `0s acquire ann; 1s release ann; 2s acquire bob; 62s acquire cid; 63s takeover opal; 64s release opal; 65s reserve:dan otto; 66s acquire dan;
		67s revoke opal2; 68s acquire eve; 69s reserve:dan otto2; 129s acquire fay`)
	want := []struct {
		owner       string
		state       tenure.State
		cause       tenure.Cause
		actor, note string
	}{
		{"ann", tenure.Held, tenure.First, "", ""},
		{"bob", tenure.Held, tenure.Released, "", ""},
		{"cid", tenure.Held, tenure.Expired, "", ""},
		{"opal", tenure.Held, tenure.Operator, "opal", "because opal says so"},
		{"dan", tenure.Reserved, tenure.Operator, "otto", "because otto says so"},
		{"dan", tenure.Held, tenure.Handoff, "otto", "because otto says so"},
		{"", tenure.Free, tenure.Cancelled, "opal2", "because opal2 says so"},
		{"eve", tenure.Held, tenure.Cancelled, "", ""},
		{"dan", tenure.Reserved, tenure.Operator, "otto2", "because otto2 says so"},
		{"fay", tenure.Held, tenure.Expired, "", ""},
	}
	if len(rec.History) != len(want) {
		t.Fatalf("%d transfers in the history, want %d", len(rec.History), len(want))
	}
	for i, w := range want {
		got := rec.History[i]
		if got.Owner != w.owner || got.State != w.state || got.Cause != w.cause || got.Actor != w.actor || got.Note != w.note {
			t.Errorf("transfer %d is %+v, want %+v", i, got, w)
		}
	}
	if rec.Terms != 7 {
		t.Errorf("%d terms, want 7", rec.Terms)
	}
	if rec.Actor != "" || rec.Note != "" {
		t.Errorf("an old operator still stands in the record: %q, %q", rec.Actor, rec.Note)
	}
}

// TestRecoveryIsAClaimAboveWhatTheStoreKnows: a claim above the newest token
// shows that the store has lost something, whatever ended the term before.
func TestRecoveryIsAClaimAboveWhatTheStoreKnows(t *testing.T) {
	const far = 1 << 51
	for _, c := range []struct {
		story string
		above func(tenure.Record) fence.Token
		want  tenure.Cause
	}{
		{"", func(tenure.Record) fence.Token { return 0 }, tenure.First},
		{"", func(tenure.Record) fence.Token { return 1 }, tenure.Recovery},
		{"", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"0s acquire ann; 1s release ann", func(r tenure.Record) fence.Token { return r.Token - 1 }, tenure.Released},
		{"0s acquire ann; 1s release ann", func(r tenure.Record) fence.Token { return r.Token }, tenure.Recovery},
		{"0s acquire ann; 1s release ann", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"0s acquire ann; 1s release+failed ann", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"0s acquire ann", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"0s revoke opal", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"50s reserve:bob opal", func(tenure.Record) fence.Token { return far }, tenure.Recovery},
		{"50s reserve:bob opal", func(tenure.Record) fence.Token { return 1 }, tenure.Handoff},
	} {
		rec := play(t, c.story)
		q := ask("acquire", "bob")
		q.Above = c.above(rec)
		next := must(t, rec, q, after(time.Minute))
		if next.Cause != c.want || next.Token <= q.Above || next.Token <= rec.Token {
			t.Errorf("%q above %d: token %d, cause %q; want cause %q", c.story, q.Above, next.Token, next.Cause, c.want)
		}
		if (next.Actor != "") != (c.want == tenure.Handoff) {
			t.Errorf("%q above %d: actor %q for cause %q", c.story, q.Above, next.Actor, next.Cause)
		}
	}
	// Above does not get past a holder, a hold or a reservation.
	for _, story := range []string{"50s acquire ann", "50s acquire+hold ann; 51s release ann", "50s reserve:ann opal"} {
		rec := play(t, story)
		q := ask("acquire", "bob")
		q.Above = far
		if _, changed, err := tenure.Apply(rec, q, after(time.Minute)); changed || err == nil {
			t.Errorf("%q: above got past it", story)
		}
	}
}

// TestTheHistoryHolds32: the history has the newest transfers, oldest first,
// and Terms goes on counting.
func TestTheHistoryHolds32(t *testing.T) {
	var rec tenure.Record
	var before tenure.Record
	for i := range 40 {
		who := fmt.Sprint("worker ", i)
		now := after(time.Duration(i) * time.Minute)
		before = must(t, rec, ask("acquire", who), now)
		rec = must(t, before, ask("release", who), now.Add(time.Second))
		if want := min(i+1, tenure.HistoryLen); len(rec.History) != want {
			t.Fatalf("after %d transfers the history holds %d, want %d", i+1, len(rec.History), want)
		}
	}
	if rec.Terms != 40 {
		t.Errorf("%d terms, want 40", rec.Terms)
	}
	for i, term := range rec.History {
		if want := fmt.Sprint("worker ", 8+i); term.Owner != want {
			t.Errorf("transfer %d is of %s, want %s", i, term.Owner, want)
		}
	}
	now := after(time.Hour)
	// The oldest grant in the history cannot be acquired again. Releasing it
	// again still succeeds.
	oldest := "worker 8"
	if _, _, err := tenure.Apply(rec, ask("acquire", oldest), now); !reflect.DeepEqual(err, &tenure.NotOwnedError{
		Grant: secretOf(oldest).Grant(), Record: rec, Why: tenure.WhyReleased, Now: now,
	}) {
		t.Errorf("acquired again by %s: %v", oldest, err)
	}
	if _, changed, err := tenure.Apply(rec, ask("release", oldest), now); changed || err != nil {
		t.Errorf("released again by %s: %v, %v", oldest, changed, err)
	}
}

// TestAnOperatorFindsTheHoldersGuards: the record keeps the holder's guards
// through any number of operators' acts, until the next holder names its own.
func TestAnOperatorFindsTheHoldersGuards(t *testing.T) {
	claim := ask("acquire", "ann")
	claim.Guards = []string{"/srv/out.json", "redis://h#k"}
	rec := must(t, tenure.Record{}, claim, noon)
	claim.Guards[0] = "changed by the caller"
	for i, verb := range []string{"takeover", "reserve:bob", "revoke"} {
		rec = must(t, rec, ask(verb, fmt.Sprint("operator ", i)), after(time.Duration(i)*time.Second))
		if want := []string{"/srv/out.json", "redis://h#k"}; !reflect.DeepEqual(rec.Guards, want) {
			t.Errorf("after %s the record names %q, want %q", verb, rec.Guards, want)
		}
	}
	named := ask("takeover", "otto")
	named.Guards = []string{"/srv/other"}
	if own := must(t, rec, named, after(5*time.Second)); !reflect.DeepEqual(own.Guards, named.Guards) {
		t.Errorf("an operator's own guards became %q", own.Guards)
	}
	if next := must(t, rec, ask("acquire", "bob"), after(5*time.Second)); next.Guards != nil {
		t.Errorf("the next holder, who named none, has %q", next.Guards)
	}
}

// TestAReservationIsOfNoRun: it names an owner, but no instance.
func TestAReservationIsOfNoRun(t *testing.T) {
	q := ask("reserve:bob", "opal")
	q.Instance = "opal#1"
	if rec := must(t, tenure.Record{}, q, noon); rec.Owner != "bob" || rec.Instance != "" {
		t.Errorf("reserved for %q, run %q", rec.Owner, rec.Instance)
	}
}

// TestTheLawSharesNothing: changing the returned record does not change the one
// that was passed in.
func TestTheLawSharesNothing(t *testing.T) {
	claim := ask("acquire", "ann")
	claim.Guards = []string{"/srv/out"}
	held := must(t, tenure.Record{}, claim, noon)
	for _, verb := range []string{"renew", "report", "release", "takeover", "reserve:eve", "revoke"} {
		who := "ann"
		if ask(verb, who).Verb.ByHand() {
			who = "opal"
		}
		before := clone(held)
		next := must(t, held, ask(verb, who), after(time.Second))
		next.Guards[0] = "changed"
		for i := range next.History {
			next.History[i] = tenure.Term{}
		}
		_ = append(next.History[:1], tenure.Term{})
		if !reflect.DeepEqual(held, before) {
			t.Errorf("%s: the record it began from changed with the one it made", verb)
		}
	}
	if claim.Guards[0] = "changed"; held.Guards[0] != "/srv/out" {
		t.Error("the record changed with the request's guards")
	}
}
