package sim

import (
	"errors"
	"slices"

	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// claim is what a job asks for.
type claim struct {
	terms  keep.Terms
	req    tenure.Request // without its secret
	guards []*resource    // named: raised at the grant, and read
	blind  []*resource    // not named: written without a look
}

// pursuit drives one waiter: first for a job, then, if that leaves an unknown outcome behind, in the background.
type pursuit struct {
	c       *client
	life    int
	job     *job
	claim   claim
	waiter  *keep.Waiter
	secret  tenure.Secret
	over    bool
	behind  bool
	watched bool
	armed   int
	sent    instant // the newest request
	begun   instant
	forever bool
}

func (u *pursuit) key() string { return u.claim.req.Key }

// pursue begins to wait for what a claim asks for.
func (c *client) pursue(j *job, cl claim, p keep.Patience) *pursuit {
	u := &pursuit{c: c, life: c.life, job: j, claim: cl, begun: c.Now()}
	p.Terms, p.Resolve, p.Call = cl.terms, callTimeout, callBound
	u.waiter = keep.NewWaiter(p, c.Now(), c.rng.Float64)
	return u
}

// step tells the machine of an event and does what it wishes.
func (u *pursuit) step(e keep.Event) {
	if u.over {
		return
	}
	c := u.c
	wishes := u.waiter.Step(e, c.Now())
	if wishes.Fresh {
		u.secret = c.w.secret()
		c.w.judge.asking[u.secret.Grant()] = u
	}
	if wishes.Ask || wishes.Release {
		u.send(wishes)
	}
	if wishes.Watch {
		u.watch()
	}
	switch {
	case wishes.Granted:
		u.end()
		deadline := wishes.Deadline
		if c.w.mutant.is(TimeFromLastSend) {
			deadline = u.sent.Add(u.claim.terms.TTL - u.claim.terms.Margin())
		}
		u.job.granted(u, e.(keep.Answered).Answer, deadline)
		return
	case wishes.Done:
		u.end()
		if wishes.Resolved != "" {
			c.w.cover("resolution", string(wishes.Resolved))
			c.w.say(u.job.name, "what became of its request for %s: %s", u.key(), wishes.Resolved)
		}
		c.w.judge.concluded(u, wishes.Resolved)
		if !u.behind {
			u.job.turnedAway(wishes.Err)
		}
		return
	case wishes.Background && !u.behind:
		u.behind = true
		c.w.say(u.job.name, "leaves what became of its request for %s to the background", u.key())
		u.job.turnedAway(wishes.Err)
		if c.w.mutant.is(AbandonsUnknown) {
			u.end()
			return
		}
	}
	u.arm()
}

// send makes the request the machine wishes for.
func (u *pursuit) send(wishes keep.Wishes) {
	c := u.c
	req := u.claim.req
	req.Secret = u.secret
	if wishes.Release {
		req = tenure.Request{Verb: tenure.Release, Key: req.Key, Secret: u.secret, Failed: true}
	}
	u.sent = c.Now()
	again := ""
	if wishes.Again {
		again = ", again"
	}
	c.w.say(u.job.name, "asks to %s %s%s", req.Verb, req.Key, again)
	c.apply([]tenure.Request{req}, func(answers []store.Answer, sent instant) {
		if u.over {
			return
		}
		a := answers[0]
		if a.Err == nil && wishes.Again && wishes.Ask {
			c.w.cover("transition", "acquire again")
		}
		if c.w.mutant.is(UnchangedIsFailed) && wishes.Ask && !u.behind && errors.Is(a.Err, store.ErrUnknown) {
			u.look()
			return
		}
		u.step(keep.Answered{Attempt: wishes.Attempt, Sent: sent, Answer: a})
	})
}

// look is a mutant's: it reads the record, and takes a request that cannot be seen there for one that has failed.
func (u *pursuit) look() {
	u.c.w.store.get(u.c, u.key(), func(rec tenure.Record, _ timeOf, err error) {
		if u.over || err != nil || rec.Grant == u.secret.Grant() {
			return
		}
		u.end()
		u.c.w.judge.concluded(u, keep.WasNot)
		if !u.behind {
			u.job.turnedAway(store.Unknown(errTimeout))
		}
	})
}

// end stops the machine.
func (u *pursuit) end() {
	u.over = true
	base := u.c.w.store.base()
	base.watches = slices.DeleteFunc(base.watches, func(other *pursuit) bool { return other == u })
	u.watchEnds()
}

// watchEnds tells a store that awards that nobody is woken for this pursuit any more.
func (u *pursuit) watchEnds() {
	if t, awards := u.c.w.store.(*turns); awards && u.watched {
		u.watched = false
		t.desk(u.c).unwatched(u.key())
	}
}

// arm sets the timer to when the machine has something to do.
func (u *pursuit) arm() {
	u.armed++
	n, c := u.armed, u.c
	wake := u.waiter.Wake()
	if wake == keep.Never || c.w.mutant.is(WaitsForHints) && !u.behind && u.watched {
		return
	}
	c.timer(wake.Sub(c.Now()), func() {
		switch {
		case u.over || n != u.armed:
		case c.Now() >= u.waiter.Wake():
			u.step(keep.Tick{})
		default:
			u.arm()
		}
	})
}

// watch asks for hints.
func (u *pursuit) watch() {
	base := u.c.w.store.base()
	if !base.hints {
		return
	}
	u.c.soon(u.c.w.now+between(u.c.rng, 1e6, 20e6), func() {
		if !u.over && !u.behind && base.up() {
			u.watched = true
			base.watches = append(base.watches, u)
			since := false
			if t, awards := u.c.w.store.(*turns); awards {
				since = t.desk(u.c).watched(u)
			}
			u.step(keep.Watched{Since: since})
		}
	})
}

// hint wakes the waiter.
func (u *pursuit) hint() {
	if !u.over && u.watched {
		u.step(keep.Woken{})
	}
}

// unwatch says that no more hints will come.
func (u *pursuit) unwatch() {
	if !u.over && u.watched {
		u.watchEnds()
		u.watched = false
		u.step(keep.Unwatched{})
	}
}
