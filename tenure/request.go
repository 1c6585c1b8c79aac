package tenure

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// Verb names a transition.
type Verb string

// The transitions. The last three are an operator's: they are allowed at any time, need an actor and a note, and burn a new token.
const (
	Acquire  Verb = "acquire"
	Renew    Verb = "renew"
	Report   Verb = "report"
	Release  Verb = "release"
	Takeover Verb = "takeover" // then held by the operator
	Reserve  Verb = "reserve"  // then reserved for Owner until TTL has passed
	Revoke   Verb = "revoke"   // then free
)

// The bounds of what a request may ask for.
const (
	MinTTL    = 10 * time.Millisecond
	MaxTTL    = 30 * 24 * time.Hour
	MaxPeriod = 366 * 24 * time.Hour // of Every and HoldFor
	MaxName   = 256                  // bytes of an owner, instance or actor
	MaxText   = 1024                 // bytes of a note, a progress marker or a guard's target
	MaxGuards = 16
	// MaxAbove bounds Request.Above far below the highest token, so that a mistaken one cannot use a key up.
	MaxAbove fence.Token = 1 << 52
)

// Request asks for one transition on one key. Every request carries a secret and is safe to send again: a repeated
// request has the effect of one. An operator's act is answered again as done while it is the newest transfer; after that with a [*NotOwnedError], which
// for a secret used only once also says that it was done.
type Request struct {
	Verb   Verb
	Key    string
	Secret Secret

	// Owner and Instance say who asks, for Acquire and Takeover. For Reserve, Owner is whom the key is reserved for.
	Owner, Instance string
	// TTL is how long the lease (or reservation) lasts without renewal. Renew may leave it zero to keep the lease's own; a shorter one does not
	// bring the present deadline nearer.
	TTL time.Duration
	// Above asks for a token above this one: for a holder whose token a guard has refused as older than what it remembers.
	Above fence.Token
	// Every refuses an Acquire while the last successful term began less than half of it ago.
	Every time.Duration
	// HoldFor keeps the key from everybody for this long after the Acquire, if the term ends in success.
	HoldFor time.Duration
	// Guards are the resources the holder writes to; an operator's takeover raises the fence there. An operator who names none leaves the
	// holder's in the record.
	Guards []string

	// Resume lets Renew and Report succeed after the deadline, while nobody else was granted.
	Resume bool
	// Progress is the marker of a Report.
	Progress string
	// Failed says that the released term did not succeed: hold and period do not apply.
	Failed bool

	// Actor and Note say who acts by hand, and why: for Takeover, Reserve and Revoke.
	Actor, Note string
}

// ByHand reports whether the verb is an operator's.
func (v Verb) ByHand() bool { return v == Takeover || v == Reserve || v == Revoke }

// Check reports what is wrong with the request, or nil. [Apply] refuses what Check refuses; clients call it first, so that
// bad input never reaches a store.
func (q Request) Check() error {
	if err := fence.CheckKey(q.Key); err != nil {
		return err
	}
	if !q.Secret.Valid() {
		return fmt.Errorf("%w secret: it must be 32 lower-case hex digits", fence.ErrInvalid)
	}
	return q.check()
}

// check looks at all but the key and the secret.
func (q Request) check() error {
	switch q.Verb {
	case Acquire, Renew, Report, Release, Takeover, Reserve, Revoke:
	default:
		return fmt.Errorf("%w verb %q", fence.ErrInvalid, q.Verb)
	}
	if q.Verb == Acquire || q.Verb == Takeover || q.Verb == Reserve || (q.Verb == Renew && q.TTL != 0) {
		if q.TTL < MinTTL || q.TTL > MaxTTL {
			return fmt.Errorf("%w TTL %s: it must be between %s and %s", fence.ErrInvalid, q.TTL, MinTTL, MaxTTL)
		}
	}
	if (q.Verb == Acquire || q.Verb == Takeover || q.Verb == Reserve) && strings.TrimSpace(q.Owner) == "" {
		return fmt.Errorf("%w owner: it is empty; say who asks", fence.ErrInvalid)
	}
	if q.Verb.ByHand() && (strings.TrimSpace(q.Actor) == "" || strings.TrimSpace(q.Note) == "") {
		return fmt.Errorf("%w %s: an operator's act needs an actor and a note that says why", fence.ErrInvalid, q.Verb)
	}
	if q.Above < 0 || q.Above > MaxAbove {
		return fmt.Errorf("%w above %d: it must be between 0 and %d", fence.ErrInvalid, q.Above, MaxAbove)
	}
	if q.Every < 0 || q.Every > MaxPeriod {
		return fmt.Errorf("%w period %s: it must be between 0 and %s", fence.ErrInvalid, q.Every, MaxPeriod)
	}
	if q.HoldFor < 0 || q.HoldFor > MaxPeriod {
		return fmt.Errorf("%w hold %s: it must be between 0 and %s", fence.ErrInvalid, q.HoldFor, MaxPeriod)
	}
	if len(q.Guards) > MaxGuards {
		return fmt.Errorf("%w guards: %d named, at most %d are allowed", fence.ErrInvalid, len(q.Guards), MaxGuards)
	}
	for _, g := range q.Guards {
		if g == "" {
			return fmt.Errorf("%w guard: an empty target", fence.ErrInvalid)
		}
		if err := checkText("guard", g, MaxText); err != nil {
			return err
		}
	}
	for _, field := range []struct {
		name, text string
		most       int
	}{
		{"owner", q.Owner, MaxName},
		{"instance", q.Instance, MaxName},
		{"actor", q.Actor, MaxName},
		{"note", q.Note, MaxText},
		{"progress marker", q.Progress, MaxText},
	} {
		if err := checkText(field.name, field.text, field.most); err != nil {
			return err
		}
	}
	return nil
}

// checkText keeps what people will read in listings on one line of bounded length.
func checkText(name, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%w %s: %d bytes long, at most %d are allowed", fence.ErrInvalid, name, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w %s %q: it is not valid UTF-8", fence.ErrInvalid, name, text)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		return fmt.Errorf("%w %s %q: it has a control character", fence.ErrInvalid, name, text)
	}
	return nil
}
