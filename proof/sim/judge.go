package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/engine"
	"github.com/croft-dev/croft/tenure"
)

// judge sees every change of a store at the moment it takes effect, even if no
// client learns of it, and checks the laws.
type judge struct {
	w        *world
	accounts map[string]*account
	grants   map[fence.Grant]*grant
	asking   map[fence.Grant]*ask   // by the grant of its secret
	denied   map[fence.Grant]string // secrets that an engine has given up as not granted; the value says when
}

// account has all grants of a key, even those that the store has forgotten.
type account struct {
	issued    []*grant
	current   *grant // the grant in the store's record
	transfers int
	changes   int
}

// grant is the truth about one term.
type grant struct {
	fp       fence.Grant
	token    fence.Token
	owner    string
	transfer int // its number among the key's transfers
	fate     fate
	held     bool
	stray    bool // no client is responsible: a late copy, or a secret that the store forgot
	lost     bool // the store has forgotten it
	byDeed   bool // released by its deed, without asking its holder
	shaken   bool // the store's record of it was set back, so later promises do not hold
	record   tenure.Record
}

type fate string

const (
	alive     fate = "alive"
	released  fate = "released"
	takenAway fate = "ended by hand"
	followed  fate = "followed by another"
)

func newJudge(w *world) *judge {
	return &judge{
		w: w, accounts: map[string]*account{}, grants: map[fence.Grant]*grant{},
		asking: map[fence.Grant]*ask{}, denied: map[fence.Grant]string{},
	}
}

func (j *judge) account(key string) *account {
	l := j.accounts[key]
	if l == nil {
		l = &account{}
		j.accounts[key] = l
	}
	return l
}

// committed checks a change of a record that has just taken effect.
func (j *judge) committed(req tenure.Request, before, after tenure.Record, m message) {
	w, l := j.w, j.account(req.Key)
	l.changes++
	w.say("store", "%s", describe(req, before, after, m))
	if after.Grant != before.Grant || after.Token != before.Token {
		j.transferred(l, req, before, after, m)
	} else {
		j.changed(l, req, before, after)
	}
	if req.Verb != tenure.Checkpoint && after.Checkpoint != before.Checkpoint {
		w.fail(WrongGrant, "a %s changed the checkpoint of %s from %q to %q", req.Verb, req.Key, before.Checkpoint,
			after.Checkpoint)
	}
	j.beliefs(req.Key)
}

// changed checks law 7: only the holder of a term changes it.
func (j *judge) changed(l *account, req tenure.Request, before, after tenure.Record) {
	w, fp := j.w, req.Secret.Grant()
	g := l.current
	switch {
	case fp != before.Grant:
		w.fail(
			WrongGrant, "a %s by grant %s changed the term of grant %s on %s", req.Verb, brief(fp),
			brief(before.Grant), req.Key,
		)
		return
	case before.State != tenure.Held:
		w.fail(WrongGrant, "a %s changed %s, which nobody holds: it is %s", req.Verb, req.Key, before.State)
		return
	}
	switch req.Verb {
	case tenure.Renew:
		late := !after.Renewed.Before(before.Deadline)
		if late && !req.Resume {
			w.fail(
				WrongGrant, "%s was renewed %s after its deadline, and not to resume it", req.Key,
				after.Renewed.Sub(before.Deadline),
			)
		}
		if late {
			w.cover("transition", "renew to resume")
		} else {
			w.cover("transition", "renew")
		}
	case tenure.Report, tenure.Checkpoint:
		w.cover("transition", string(req.Verb))
		if !after.Deadline.Equal(before.Deadline) {
			w.fail(WrongGrant, "a %s moved the deadline of %s by %s", req.Verb, req.Key,
				after.Deadline.Sub(before.Deadline))
		}
	case tenure.Release:
		if req.Failed {
			w.cover("transition", "release after failure")
		} else {
			w.cover("transition", "release")
		}
		if g != nil {
			g.fate = released
		}
	default:
		w.fail(WrongGrant, "a %s changed the term of %s without a new token", req.Verb, req.Key)
	}
	if g != nil {
		g.record = after
	}
}

// forgot records that the store's memory of a key was set back.
func (j *judge) forgot(key string, rec tenure.Record, why string) {
	l := j.account(key)
	l.changes++
	lost := 0
	var cur *grant
	for _, g := range l.issued {
		known := slices.ContainsFunc(rec.History, func(t tenure.Term) bool {
			return t.Grant == g.fp && t.Token == g.token
		})
		if !known && !g.lost {
			g.lost = true
			lost++
		}
		if g.fp == rec.Grant && g.token == rec.Token {
			cur = g
		}
	}
	if cur != nil {
		if cur != l.current || !sameTerm(cur.record, rec) {
			cur.shaken, cur.record, cur.fate = true, rec, fateIn(rec)
		}
		l.current = cur
	} else {
		l.current = nil
	}
	if lost > 0 {
		j.w.say("store", "%s: it no longer knows of %d grants of %s", why, lost, key)
	}
}

func sameTerm(a, b tenure.Record) bool {
	return a.Token == b.Token && a.State == b.State && a.Ended == b.Ended && a.Deadline.Equal(b.Deadline)
}

func fateIn(rec tenure.Record) fate {
	if rec.State == tenure.Free {
		return released
	}
	return alive
}

// dropped records that the store dropped a record after its retention.
func (j *judge) dropped(key string) {
	l := j.account(key)
	l.changes++
	now := j.w.store.base().now()
	for _, g := range l.issued {
		if g.fate == alive && !g.lost && !g.shaken && now.Before(g.record.Deadline) && !j.w.profile.Steps {
			j.w.fail(
				NoEarlyGrant, "the record of %s was dropped, which %s has for another %s", key,
				g.owner, g.record.Deadline.Sub(now),
			)
		}
		if g.fate == alive {
			g.fate = followed
		}
		switch {
		// If the clock stepped forward, the record is dropped early. If it
		// steps back then, the same tokens may come again.
		case j.w.profile.Steps:
			g.lost = true
		case !g.lost: // a grant that was lost before may be only a moment old
			delete(j.grants, g.fp) // longer ago than any message takes
		}
	}
	l.current = nil
}

// beliefs checks law 5: if a client believes that it holds a key, it holds it
// at the store. Operators and losses of memory are exceptions.
func (j *judge) beliefs(key string) {
	for _, c := range j.w.clients {
		for _, l := range c.leases {
			if l.Key == key {
				j.belief(l)
			}
		}
	}
}

func (j *judge) belief(l *lease) {
	w := j.w
	g := l.g
	if w.profile.Steps || g == nil || g.lost || g.shaken || g.fate == takenAway || g.byDeed || !l.believes() {
		return
	}
	base := w.store.base()
	now := base.now()
	here, there := l.c.truth(l.Deadline()), base.clock.when(int64(g.record.Deadline.Sub(epoch)))
	switch {
	case here > there && l.g.fate == alive:
		w.fail(
			LocalDeadline,
			"%s believes to hold %s with token %s until %s; the store's deadline is at %s",
			l.c.name, l.Key, short(g.token), clockFace(here), clockFace(there),
		)
	case g.fate != alive:
		w.fail(
			LocalDeadline, "%s believes to hold %s with token %s for another %s; in truth it is %s",
			l.c.name, l.Key, short(g.token), l.Deadline().Sub(l.c.Now()), g.fate,
		)
	case !now.Before(g.record.Deadline):
		w.fail(
			LocalDeadline,
			"%s believes to hold %s with token %s for another %s; the store's deadline passed %s ago",
			l.c.name, l.Key, short(g.token), l.Deadline().Sub(l.c.Now()),
			now.Sub(g.record.Deadline),
		)
	}
}

// holds checks law 6: only a grant gives authority.
func (j *judge) holds(l *lease) {
	var g *grant
	for _, issued := range j.account(l.Key).issued { // a forgotten secret may have two grants
		if issued.fp == l.Secret.Grant() && issued.token == l.Token {
			g = issued
		}
	}
	if g == nil {
		j.w.fail(
			OneTruth,
			"%s takes itself for the holder of %s with token %s; the store never granted that",
			l.c.name, l.Key, short(l.Token),
		)
		return
	}
	l.g = g
	j.belief(l)
}

// told checks law 6 at a holder: the store's "not owned" ends its authority.
func (j *judge) told(l *lease) {
	if l.believes() {
		j.w.fail(OneTruth, "%s was told that it does not own %s, and goes on", l.c.name, l.Key)
	}
}

// ask is a secret that an engine asks for a key with.
type ask struct {
	c       *client
	life    int
	secret  tenure.Secret
	key     string // set when a request was sent
	copies  int    // how often it was sent
	granted bool   // the engine has made a lease of it
}

// newSecret makes the secret of an acquire.
func (c *client) newSecret() tenure.Secret {
	a := &ask{c: c, life: c.life, secret: c.w.secret()}
	c.asks = append(c.asks, a)
	c.w.judge.asking[a.secret.Grant()] = a
	return a.secret
}

// settle tells the judge the outcome of each secret that the engine no longer
// asks with.
func (c *client) settle(events []engine.Event) {
	c.asks = slices.DeleteFunc(c.asks, func(a *ask) bool {
		res, resolved := engine.WasNot, false
		for _, e := range events {
			if e.Grant != "" && e.Grant == a.secret.Grant() {
				res, resolved = e.Outcome, true
				c.w.cover("resolution", string(res))
				c.w.say(c.name, "what became of its request for %s: %s", a.key, res)
			}
		}
		if !resolved && !a.granted && c.engine.Pursues(a.secret) {
			return false
		}
		if !a.granted {
			c.w.judge.concluded(a, res)
		}
		return true
	})
}

// concluded checks law 6 at an engine: the outcome that the engine reports for
// a request must be the true one.
func (j *judge) concluded(a *ask, res engine.Outcome) {
	w, fp := j.w, a.secret.Grant()
	g := j.grants[fp]
	now := w.store.base().now()
	// A store with a coarse clock may refuse a term as over before its
	// deadline.
	living := g != nil && g.fate == alive && !g.lost && !g.shaken && !g.stray &&
		now.Add(w.profile.Skew).Before(g.record.Deadline)
	switch res {
	case engine.WasLeft:
		if living && !w.profile.Steps && !a.c.engine.Left() {
			w.fail(
				OneTruth,
				"%s has left what became of its request for %s to time; it was granted and does not "+
					"lapse for another %s",
				a.c.name, a.key, g.record.Deadline.Sub(now),
			)
		}
	case engine.WasGranted:
		if g == nil || living {
			w.fail(OneTruth, "%s says that its request for %s was granted and is released; it is not", a.c.name, a.key)
		}
	default:
		if living && !w.profile.Steps { // a clock that is set back revives ended terms
			w.fail(
				OneTruth, "%s says that its request for %s was not granted; it was, with token %s",
				a.c.name, a.key, short(g.token),
			)
		}
		j.denied[fp] = fmt.Sprintf("at %s", clockFace(w.now))
	}
}

// begins records whether an acquire could have its key at once.
func (j *judge) begins(p *pending) {
	base, req := j.w.store.base(), p.Request
	req.Secret = tenure.Secret(fmt.Sprintf("%032x", 1))
	_, p.free, _ = tenure.Apply(base.records[req.Key].record, req, base.now())
	p.changes = j.account(req.Key).changes
}

// refused checks law 6b: if a caller is told that a key is held, the key was
// not free all the time since it asked.
func (j *judge) refused(p *pending, err error) {
	if v, is := j.w.store.(*casServer); is && (v.objects || j.w.profile.Chances[StaleRead] > 0) {
		return // the store may have read an older state
	}
	if errors.Is(err, tenure.ErrHeld) && p.free && p.changes == j.account(p.Request.Key).changes && !j.w.profile.Steps {
		j.w.fail(
			FreshRefusal, "%s was told that %s is held; it has been free since before it asked: %v",
			p.job.name, p.Request.Key, err,
		)
	}
}
