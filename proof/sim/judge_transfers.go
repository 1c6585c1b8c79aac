package sim

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// transferred checks a new term against laws 1, 2, 4, 6 and 8.
func (j *judge) transferred(l *account, req tenure.Request, before, after tenure.Record, m message) {
	w, fp := j.w, req.Secret.Grant()
	if req.Verb != tenure.Acquire && !req.Verb.ByHand() {
		w.fail(WrongGrant, "a %s made a new term of %s", req.Verb, req.Key)
		return
	}
	l.transfers++
	seen := j.grants[fp]
	j.grantedOnce(l, req, after, seen)
	j.tokensRise(l, req, after)
	if !w.profile.Steps {
		j.inTime(l, req, before, after)
	}
	j.hasCause(req, before, after)
	if req.Verb == tenure.Acquire && !m.stray && (seen == nil || !seen.lost) {
		over := !after.Deadline.After(w.store.base().now())
		j.somebodyKnows(req, fp, over)
	}
	if prev := l.current; prev != nil && prev.fate == alive {
		prev.fate = followed
		if req.Verb.ByHand() {
			prev.fate = takenAway
		}
	}
	g := &grant{
		fp: fp, token: after.Token, owner: req.Owner, transfer: l.transfers, fate: alive,
		held: after.State == tenure.Held, stray: m.stray || seen != nil && seen.lost, record: after,
	}
	l.issued = append(l.issued, g)
	l.current, j.grants[fp] = g, g
	w.cover("transition", transitionName(req, after))
}

func transitionName(req tenure.Request, after tenure.Record) string {
	if req.Verb.ByHand() {
		return string(req.Verb)
	}
	return "acquire " + string(after.Cause)
}

// grantedOnce checks law 1: a secret is granted once, and a token is given
// once.
func (j *judge) grantedOnce(l *account, req tenure.Request, after tenure.Record, seen *grant) {
	if seen != nil && !seen.lost && l.transfers-seen.transfer < tenure.HistoryLen {
		j.w.fail(
			OneGrant, "the secret of grant %s was granted again on %s: token %s after %s",
			brief(seen.fp), req.Key, short(after.Token), short(seen.token),
		)
	}
	for _, g := range l.issued {
		if g.token == after.Token && !g.lost {
			j.w.fail(OneGrant, "token %s of %s was granted twice", short(g.token), req.Key)
		}
	}
}

// tokensRise checks law 2: a new token is above all earlier ones. If the store
// has forgotten some, one part is left: the token is not below the store's
// clock. So it is above all tokens that are older than the clocks may differ.
//
// The clock is read when the store decides, not when the write arrives. A
// record may be decided on before the store forgets and created after it. Every
// real register accepts that, because it cannot tell one absent record from
// another. Such a token may be below another that was issued in between and
// forgotten. The fence refuses it then (law 3), and its owner asks for a higher
// one.
func (j *judge) tokensRise(l *account, req tenure.Request, after tenure.Record) {
	w := j.w
	for _, g := range l.issued {
		if g.token < after.Token {
			continue
		}
		if !g.lost {
			w.fail(TokensRise, "token %s of %s was granted after %s", short(after.Token), req.Key, short(g.token))
		} else if ago := after.Acquired.Sub(g.record.Acquired); !w.profile.Steps && ago > w.profile.Skew {
			w.fail(
				TokensRise, "the store forgot token %s of %s, and %s later decides on %s",
				short(g.token), req.Key, ago, short(after.Token),
			)
		}
	}
	if floor := fence.Token(after.Acquired.UnixMicro()); after.Token < floor {
		w.fail(TokensRise, "token %s of %s is below the store's clock, %s", short(after.Token), req.Key, short(floor))
	}
}

// inTime checks law 4: no grant before the deadline, the end of a hold or the
// end of a reservation.
func (j *judge) inTime(l *account, req tenure.Request, before, after tenure.Record) {
	w, p := j.w, l.current
	if p == nil || req.Verb.ByHand() {
		return
	}
	if now := w.store.base().now(); p.fate == alive && p.held && now.Before(p.record.Deadline) {
		w.fail(
			NoEarlyGrant, "%s was granted to %s %s before the deadline of %s", req.Key, req.Owner,
			p.record.Deadline.Sub(now), p.owner,
		)
	}
	if !before.IsZero() && after.Acquired.Before(before.Renewed) {
		w.fail(
			NoEarlyGrant,
			"the term of %s on %s begins %s before the last act of the term before it", req.Owner,
			req.Key, before.Renewed.Sub(after.Acquired),
		)
	}
	if before.State == tenure.Free && after.Acquired.Before(before.Deadline) {
		w.fail(
			NoEarlyGrant, "the term of %s on %s begins %s before the one before it ended",
			req.Owner, req.Key, before.Deadline.Sub(after.Acquired),
		)
	}
	if before.State == tenure.Free && before.Ended == tenure.EndReleased && after.Acquired.Before(before.HoldUntil) {
		w.fail(
			NoEarlyGrant, "%s was granted to %s %s before its hold was over", req.Key, req.Owner,
			before.HoldUntil.Sub(after.Acquired),
		)
	}
	if before.State == tenure.Reserved && before.Owner != req.Owner && after.Acquired.Before(before.Deadline) {
		w.fail(
			NoEarlyGrant, "%s was granted to %s, though it is reserved for %s for another %s",
			req.Key, req.Owner, before.Owner, before.Deadline.Sub(after.Acquired),
		)
	}
}

// hasCause checks law 8: every term has its cause, and an operator's act has an
// actor and a note.
func (j *judge) hasCause(req tenure.Request, before, after tenure.Record) {
	w := j.w
	want := tenure.Expired
	switch {
	case req.Verb == tenure.Revoke:
		want = tenure.Cancelled
	case req.Verb.ByHand():
		want = tenure.Operator
	case req.Above > 0 && req.Above >= before.Token:
		want = tenure.Recovery
	case before.IsZero():
		want = tenure.First
	case before.State == tenure.Free && before.Cause == tenure.Cancelled && before.Ended == "":
		want = tenure.Cancelled
	case before.State == tenure.Free:
		want = tenure.Released
	case before.State == tenure.Reserved && after.Acquired.Before(before.Deadline):
		want = tenure.Handoff
	}
	if after.Cause != want {
		w.fail(
			Causes, "the cause of the term of %s on %s is %q; it should be %q", req.Owner, req.Key,
			after.Cause, want,
		)
	}
	if req.Verb.ByHand() && (after.Actor == "" || after.Note == "") {
		w.fail(Causes, "a %s of %s names actor %q and note %q", req.Verb, req.Key, after.Actor, after.Note)
	}
	if n := len(after.History); n == 0 || after.History[n-1].Grant != after.Grant ||
		after.History[n-1].Cause != after.Cause {
		w.fail(Causes, "the history of %s does not end with its own term", req.Key)
	}
}

// somebodyKnows checks law 6: a client waits for each grant, or finds out about
// it in the background. A term may be over when it is written, because a commit
// may take longer than the term. It keeps the key from nobody, so no client
// need know of it.
func (j *judge) somebodyKnows(req tenure.Request, fp fence.Grant, over bool) {
	if at, denied := j.denied[fp]; denied {
		j.w.fail(
			OneTruth, "a request for %s was granted that its maker, %s, was told %s would not be",
			req.Key, req.Owner, at,
		)
		return
	}
	if over {
		return
	}
	if a := j.asking[fp]; a == nil || a.life == a.c.life && !a.c.engine.Pursues(a.secret) && !a.c.engine.Left() {
		j.w.fail(OneTruth, "%s was granted by a request of %s that nobody pursues", req.Key, req.Owner)
	}
}

// describe formats a change for the timeline.
func describe(req tenure.Request, before, after tenure.Record, m message) string {
	stray := ""
	if m.stray {
		stray = " (a stray copy)"
	}
	who := req.Owner
	if who == "" {
		who = before.Owner
	}
	switch {
	case after.Token != before.Token:
		return fmt.Sprintf(
			"%s: %s by %s: token %s, cause %s, %s until %s%s", req.Key, req.Verb, who,
			short(after.Token), after.Cause, after.State, faceOf(after.Deadline), stray,
		)
	case req.Verb == tenure.Release:
		return fmt.Sprintf("%s: release by %s: token %s, %s%s", req.Key, who, short(after.Token), after.Ended, stray)
	}
	return fmt.Sprintf(
		"%s: %s by %s: token %s, until %s%s", req.Key, req.Verb, who, short(after.Token),
		faceOf(after.Deadline), stray,
	)
}

// faceOf formats a time on the store's clock for timelines, since the run
// began.
func faceOf(t time.Time) string { return clockFace(t.Sub(epoch)) }

// short formats a token for timelines: only the part that differs within a run.
func short(t fence.Token) string {
	return fmt.Sprintf("%.6f", float64(int64(t)-epoch.UnixMicro())/1e6)
}

// brief returns the first characters of a grant.
func brief(g fence.Grant) string { return string(g[:min(len(g), 8)]) }
