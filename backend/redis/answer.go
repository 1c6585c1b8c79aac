package redis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by errors about a record that Croft cannot have
// written. Croft decides nothing by it and does not overwrite it.
var ErrDamaged = store.ErrDamaged

var errReply = errors.New("redis: a script's reply is not what it returns; is a proxy between that changes replies?")

// verdict is the outcome of a request, as apply.lua names it.
type verdict byte

// refusals maps outcomes to the law's reasons. Capital letters say that the
// store has also been put into the queue of waiters.
var refusals = map[verdict]tenure.Why{
	'h': tenure.WhyHeld, 'H': tenure.WhyHeld, 'r': tenure.WhyReserved, 'R': tenure.WhyReserved,
	'o': tenure.WhyHold, 'p': tenure.WhyPeriod,
	'l': tenure.WhyReleased, 'e': tenure.WhyExpired, 's': tenure.WhySuperseded,
	't': tenure.WhyTakenOver, 'u': tenure.WhyUnknown,
}

const (
	done       verdict = 'd'
	granted    verdict = 'g' // done, and the texts of the record are those of the request
	takenOver  verdict = 't' // with the terms before the newest
	secretUsed verdict = 'x'
	noTokens   verdict = 'n'
	isDamaged  verdict = '!'
)

// inQueue reports whether a refused acquire has put the store into the queue.
func (o verdict) inQueue() bool { return o == 'H' || o == 'R' }

// answer reads the script's answer to a request and sets a to what the law
// would return.
func (p *packed) answer(req *tenure.Request, now time.Time, a *store.Answer) verdict {
	said := verdict(p.byte())
	var asked *tenure.Request
	if said == granted {
		said, asked = done, req
	}
	awaited := req.Verb == tenure.Release && said == done && p.awaited()
	rec, err := p.record(req.Key, asked)
	if said == takenOver {
		terms := packed{rest: p.take(p.length())}
		if rec.History = terms.history(rec); err == nil {
			err = terms.err
		}
	}
	if p.err != nil { // the reply is damaged, not the record
		*a = store.Answer{Err: store.Unknown(errReply)}
		return said
	}
	if said == isDamaged {
		a.Err = store.Fault(damaged(req.Key, err))
		return said
	}
	if err != nil {
		a.Err = store.Unknown(damaged(req.Key, err))
		return said
	}
	a.Record, a.Now, a.Awaited = rec, now, awaited
	switch why := refusals[said]; why {
	case tenure.WhyHeld, tenure.WhyReserved:
		a.Err = &tenure.HeldError{Record: rec, Why: why, Until: rec.Deadline, Now: now}
	case tenure.WhyHold:
		a.Err = &tenure.HeldError{Record: rec, Why: why, Until: rec.HoldUntil, Now: now}
	case tenure.WhyPeriod:
		until := rec.Due(req.Every.Truncate(time.Microsecond))
		a.Err = &tenure.HeldError{Record: rec, Why: why, Until: until, Now: now}
	case "":
		switch said {
		case done:
		case secretUsed:
			a.Err = fmt.Errorf("%w secret: it has been used for another request on %q; make a new one for each",
				fence.ErrInvalid, req.Key)
		case noTokens:
			a.Err = fmt.Errorf("%w token: tokens end at %d and the store's clock, now %s, has been far ahead; "+
				"delete the key's record from the store", fence.ErrInvalid, fence.MaxToken, now.Format(time.RFC3339))
		default:
			*a = store.Answer{Err: store.Unknown(errReply)}
		}
	default:
		a.Err = &tenure.NotOwnedError{Grant: req.Secret.Grant(), Record: rec, Why: why, Now: now}
	}
	return said
}

// history reads all terms that follow, sorts them, and appends the record's
// own.
func (p *packed) history(rec tenure.Record) []tenure.Term {
	var past []tenure.Term
	for p.rest != "" {
		past = append(past, p.pastTerm())
	}
	slices.SortFunc(past, func(a, b tenure.Term) int { return cmp.Compare(a.Token, b.Token) })
	return append(past, terms.Newest(&rec))
}

// parseRecord reads a reply of read.lua: a record and, if history is set, the
// terms before the newest. It returns a zero record if text is empty.
func parseRecord(key, text string, history bool) (tenure.Record, error) {
	if text == "" {
		return tenure.Record{}, nil
	}
	p := &packed{rest: text}
	rec, err := p.record(key, nil)
	if err == nil && rec.IsZero() {
		err = errForeign
	}
	if history && err == nil {
		rec.History = p.history(rec)
		err = p.err
	}
	if err == nil && p.rest != "" {
		err = errForeign
	}
	if err == nil {
		whole := rec
		if !history { // check the newest term only
			whole.History = []tenure.Term{terms.Newest(&rec)}
		}
		err = whole.Check()
	}
	if err != nil {
		return tenure.Record{}, err
	}
	return rec, nil
}

// damaged makes an error about a key's record. It must not match
// fence.ErrInvalid, as err may, because the caller's input was good.
func damaged(key string, err error) error {
	if err == nil {
		err = errForeign
	}
	return fmt.Errorf("%w: key %q: %s; delete it from Redis if the key may be forgotten", ErrDamaged, key, err.Error())
}
