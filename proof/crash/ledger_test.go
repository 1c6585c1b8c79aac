package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

var all = flag.Bool("all", false, "recover every folder that a power cut may leave: minutes instead of seconds")

// oneIn returns the OneIn of a search: n, ten times n with -short, 1 with -all.
func oneIn(n int) int {
	if *all {
		return 1
	}
	if testing.Short() {
		return 10 * n
	}
	return n
}

// after returns the step at which a search begins: the one after the tables
// were made, or the first with -all. Making tables takes hundreds of steps.
func after(made int) int {
	if *all {
		return 0
	}
	return made
}

// asked and told are notes of a store's client: its request, and the answer.
// now is the store's time.
type asked struct {
	req tenure.Request
	now time.Time
}

type told struct {
	req    tenure.Request
	record tenure.Record
	now    time.Time
}

// swept notes that from here on the store may forget keys.
type swept struct{}

func (swept) String() string { return "sweep" }

func (a asked) String() string {
	return fmt.Sprintf("asked: %s %s by %s", a.req.Verb, a.req.Key, a.req.Owner)
}

func (a told) String() string {
	return fmt.Sprintf("told:  %s %s by %s: token %d, %s", a.req.Verb, a.req.Key, a.req.Owner, a.record.Token, a.record.State)
}

// client sends requests to a store, and records requests and answers.
type client struct {
	testing.TB
	rec   *Recorder
	clock *storetest.Clock
}

// ask sends a request that must succeed.
func (c *client) ask(st store.Store, req tenure.Request) tenure.Record {
	c.Helper()
	a := c.try(st, req)
	if a.Err != nil {
		c.Fatalf("%s %s: %v", req.Verb, req.Key, a.Err)
	}
	return a.Record
}

// try sends a request. It records the answer only if it is a success.
func (c *client) try(st store.Store, req tenure.Request) store.Answer {
	c.Helper()
	c.clock.Advance(time.Millisecond)
	c.rec.Note(asked{req, c.clock.Now()})
	a := st.Apply(context.Background(), []tenure.Request{req})[0]
	if a.Err == nil {
		c.rec.Note(told{req, a.Record, c.clock.Now()})
	}
	return a
}

const ttl = time.Minute

func acquire(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, Instance: "1", TTL: ttl}
}

func then(verb tenure.Verb, req tenure.Request) tenure.Request {
	req.Verb = verb
	if verb == tenure.Report {
		req.Progress = "half"
	}
	if verb == tenure.Checkpoint {
		req.Checkpoint = "where " + req.Owner + " was"
	}
	return req
}

func takeover(key string) tenure.Request {
	req := acquire(key, "olga")
	req.Verb, req.Actor, req.Note = tenure.Takeover, "olga", "why"
	return req
}

// lawful compares a store after a cut with its clients' requests and answers.
// open opens the store on a clock.
func lawful(open func(now func() time.Time) (store.Store, error), notes []any) error {
	clock := storetest.NewClock()
	keys := map[string]*account{}
	var order []string
	for _, n := range notes {
		var req tenure.Request
		var now time.Time
		switch n := n.(type) {
		case asked:
			req, now = n.req, n.now
		case told:
			req, now = n.req, n.now
		case swept:
			for _, a := range keys {
				a.dropped = len(a.told)
			}
			continue
		default:
			continue
		}
		clock.Advance(now.Sub(clock.Now()))
		a := keys[req.Key]
		if a == nil {
			a = &account{key: req.Key}
			keys[req.Key] = a
			order = append(order, req.Key)
		}
		a.add(n)
	}
	st, err := open(clock.Now)
	if err != nil {
		return fmt.Errorf("it cannot be opened: %w", err)
	}
	defer st.Close()
	for _, key := range order {
		if err := keys[key].check(st, clock); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}
	return nil
}

// account has the requests and answers about one key.
type account struct {
	key    string
	told   []told
	flying *tenure.Request // sent, and not answered before the cut
	failed []tenure.Request
	// dropped is how many entries of told the store may have forgotten: all or
	// none of them.
	dropped int
}

func (a *account) add(note any) {
	switch n := note.(type) {
	case asked:
		if a.flying != nil {
			a.failed = append(a.failed, *a.flying) // its process was killed, and others went on
		}
		a.flying = &n.req
	case told:
		a.flying = nil
		a.told = append(a.told, n)
	}
}

func (a *account) check(st store.Store, clock *storetest.Clock) error {
	ctx := context.Background()
	rec, err := st.Get(ctx, a.key)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	var newest fence.Token
	for _, t := range a.told {
		newest = max(newest, t.record.Token)
	}
	if a.dropped > 0 && !slices.ContainsFunc(rec.History, func(term tenure.Term) bool { return term.Token == a.told[0].record.Token }) {
		a.told = a.told[a.dropped:]
	}
	if err := a.remembered(rec); err != nil {
		return err
	}
	if err := a.again(st, rec); err != nil {
		return err
	}
	// Then work goes on, once every deadline has passed.
	clock.Advance(2 * ttl)
	next := acquire(a.key, "next")
	ans := st.Apply(ctx, []tenure.Request{next})[0]
	if ans.Err != nil {
		return fmt.Errorf("the next acquire: %w", ans.Err)
	}
	if ans.Record.Token <= newest || ans.Record.Token <= rec.Token {
		return fmt.Errorf("the next token is %d, after %d was told and %d was remembered (law 2)", ans.Record.Token, newest, rec.Token)
	}
	ans = st.Apply(ctx, []tenure.Request{then(tenure.Release, next)})[0]
	if ans.Err != nil {
		return fmt.Errorf("the next release: %w", ans.Err)
	}
	return nil
}

// remembered compares the record with the answers that clients got.
func (a *account) remembered(rec tenure.Record) error {
	var last told
	saves := func(req tenure.Request) bool { return req.Verb == tenure.Checkpoint }
	saved, doubt := rec.Checkpoint, slices.ContainsFunc(a.failed, saves) || a.flying != nil && saves(*a.flying)
	for _, t := range a.told {
		if t.req.Verb == tenure.Renew || t.req.Verb == tenure.Report {
			continue // may be lost: all holders died in the same cut
		}
		last = t
		if saves(t.req) {
			saved = t.req.Checkpoint
		}
		i := slices.IndexFunc(rec.History, func(term tenure.Term) bool { return term.Token == t.record.Token })
		switch {
		case i < 0:
			return fmt.Errorf("%s: token %d was told and is forgotten (law 6); the record is %s", t.req.Verb, t.record.Token, show(rec))
		case rec.History[i].Grant != t.record.Grant:
			return fmt.Errorf("token %d was told to one and is remembered as another's (law 1)", t.record.Token)
		}
	}
	if rec.Checkpoint != saved && !doubt {
		return fmt.Errorf("the checkpoint %q was told, the record has %q", saved, rec.Checkpoint)
	}
	for i, term := range rec.History {
		if term.Cause == "" || term.Cause == tenure.Operator && (term.Actor == "" || term.Note == "") {
			return fmt.Errorf("token %d has no cause, actor or note (law 8): %+v", term.Token, term)
		}
		if i > 0 && term.Token <= rec.History[i-1].Token {
			return fmt.Errorf("token %d comes after %d (law 2)", term.Token, rec.History[i-1].Token)
		}
	}
	if last.req.Verb == tenure.Release && rec.Token == last.record.Token && rec.State != tenure.Free {
		return fmt.Errorf("a release was told, and the key is held (law 6): %s", show(rec))
	}
	if a.flying == nil && len(a.failed) == 0 && last.req.Verb != "" && (rec.Token != last.record.Token || rec.State != last.record.State) {
		return fmt.Errorf("nothing was under way; the last told was %s, the record is %s", last, show(rec))
	}
	return nil
}

// again repeats the request in flight, and sends late copies of finished ones.
// It also checks that requests with a wrong secret change nothing.
func (a *account) again(st store.Store, rec tenure.Record) error {
	ctx := context.Background()
	wrong := acquire(a.key, "nobody")
	for _, verb := range []tenure.Verb{tenure.Renew, tenure.Release, tenure.Report, tenure.Checkpoint} {
		if ans := st.Apply(ctx, []tenure.Request{then(verb, wrong)})[0]; !errors.Is(ans.Err, tenure.ErrNotOwned) {
			return fmt.Errorf("%s with a secret of nobody's: %w (law 7)", verb, ans.Err)
		}
	}
	for _, t := range a.told {
		if t.req.Verb != tenure.Acquire || t.record.Grant == rec.Grant && rec.State == tenure.Held || rec.IsZero() {
			continue
		}
		if ans := st.Apply(ctx, []tenure.Request{t.req})[0]; ans.Err == nil || errors.Is(ans.Err, store.ErrUnknown) {
			return fmt.Errorf("a late copy of a granted request, now over: %w, token %d (law 1)", ans.Err, ans.Record.Token)
		}
	}
	after, err := st.Get(ctx, a.key)
	if err != nil || after.Token != rec.Token || after.State != rec.State {
		return fmt.Errorf("what changes nothing has made %s of %s, %w (law 7)", show(after), show(rec), err)
	}
	if a.flying == nil {
		return nil
	}
	one := st.Apply(ctx, []tenure.Request{*a.flying})[0]
	two := st.Apply(ctx, []tenure.Request{*a.flying})[0]
	if errors.Is(one.Err, store.ErrUnknown) || errors.Is(two.Err, store.ErrUnknown) || (one.Err == nil) != (two.Err == nil) || one.Record.Token != two.Record.Token {
		return fmt.Errorf("what was under way, asked again: %w and token %d, then %w and token %d (law 6)", one.Err, one.Record.Token, two.Err, two.Record.Token)
	}
	return nil
}

func show(rec tenure.Record) string {
	if rec.IsZero() {
		return "(none)"
	}
	return fmt.Sprintf("(token %d, %s, %s, %d terms)", rec.Token, rec.State, rec.Cause, rec.Terms)
}
