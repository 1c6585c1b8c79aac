package tenure

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// Verb names the change that a request asks for.
type Verb string

// The verbs. The last three are an operator's. They are allowed at any time,
// need an actor and a note, and take a new token.
const (
	Acquire Verb = "acquire"
	Renew   Verb = "renew"
	Report  Verb = "report"
	// Checkpoint saves bytes for the next holder. See [Record.Checkpoint].
	Checkpoint Verb = "checkpoint"
	Release    Verb = "release"
	Takeover   Verb = "takeover" // the operator then holds the key
	Reserve    Verb = "reserve"  // the key is then reserved for Owner, for TTL
	Revoke     Verb = "revoke"   // the key is then free
)

// The limits on what a request may ask for.
const (
	MinTTL    = 10 * time.Millisecond
	MaxTTL    = 30 * 24 * time.Hour
	MaxPeriod = 366 * 24 * time.Hour // of Every and HoldFor
	// Once is the period of work that is to succeed once and never again. It is
	// longer than any store lasts.
	Once      = 200 * 365 * 24 * time.Hour
	MaxName   = 256  // bytes of an owner, instance or actor
	MaxText   = 1024 // bytes of a note, a progress marker or a guard's target
	MaxGuards = 16
	// MaxCheckpoint limits the bytes that a holder may save for the next one.
	MaxCheckpoint = 1024
	// MaxAbove limits Request.Above to far below the highest token, so that a
	// wrong value cannot use up a key's tokens.
	MaxAbove fence.Token = 1 << 52
)

// Request asks for one change of one key's record. Every request carries a
// secret and is safe to repeat: sending it again has no second effect.
//
// A repeated request of an operator is answered as done while its transfer is
// the newest. After that the answer is a [*NotOwnedError]. If the secret was
// used for no other request, that error also means that the act was done.
type Request struct {
	Verb   Verb
	Key    string
	Secret Secret

	// Owner and Instance name the holder, for Acquire and Takeover. For
	// Reserve, Owner is the owner for whom the key is reserved.
	Owner, Instance string
	// TTL is how long the lease or reservation lasts without renewal. A Renew
	// with TTL zero keeps the lease's own. A Renew with a shorter TTL does not
	// bring the present deadline nearer.
	TTL time.Duration
	// Above asks for a token above this one. A holder sets it after a guard has
	// refused its token because the guard remembers a higher one.
	Above fence.Token
	// Every is the period of work that is to succeed once per period. The law
	// refuses an Acquire in the slot of the last success: see [Record.Due].
	// With [Once] the work succeeds once and never again.
	Every time.Duration
	// HoldFor keeps the key from everybody until this long after the Acquire,
	// if the term ends in success before that.
	HoldFor time.Duration
	// Guards are the targets of the resources that the holder writes to. An
	// operator's takeover raises the fence there. If an operator's request
	// names none, the record keeps the holder's.
	Guards []string

	// Resume lets Renew, Report and Checkpoint succeed after the deadline, as
	// long as nobody else was granted the key.
	Resume bool
	// Progress is the text of a Report.
	Progress string
	// Checkpoint holds the bytes that the verb Checkpoint saves. They may be
	// any bytes, and replace those that were saved before.
	Checkpoint string
	// Failed says that the released term did not succeed. Then HoldFor and
	// Every do not apply.
	Failed bool

	// Actor and Note say which operator acts, and why. Takeover, Reserve and
	// Revoke need both.
	Actor, Note string
}

// ByHand reports whether the verb is an operator's: Takeover, Reserve or
// Revoke.
func (v Verb) ByHand() bool { return v == Takeover || v == Reserve || v == Revoke }

// Check returns nil if the request is well formed, and otherwise an error that
// matches [fence.ErrInvalid]. [Apply] refuses every request that Check refuses.
// Clients call Check first, so that bad input never reaches a store.
func (q Request) Check() error {
	if err := fence.CheckKey(q.Key); err != nil {
		return err
	}
	if !q.Secret.Valid() {
		return fmt.Errorf("%w secret: it must be 32 lower-case hex digits", fence.ErrInvalid)
	}
	return q.check()
}

// check is Check without the key and the secret.
func (q Request) check() error {
	switch q.Verb {
	case Acquire, Renew, Report, Checkpoint, Release, Takeover, Reserve, Revoke:
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
	if !validPeriod(q.Every) {
		return fmt.Errorf("%w period %s: it must be between 0 and %s", fence.ErrInvalid, q.Every, MaxPeriod)
	}
	if q.HoldFor < 0 || q.HoldFor > MaxPeriod {
		return fmt.Errorf("%w hold %s: it must be between 0 and %s", fence.ErrInvalid, q.HoldFor, MaxPeriod)
	}
	if err := CheckGuards(q.Guards); err != nil {
		return err
	}
	if len(q.Checkpoint) > MaxCheckpoint {
		return fmt.Errorf("%w checkpoint: %d bytes long, at most %d are allowed; "+
			"save where the state is, and keep the state elsewhere", fence.ErrInvalid, len(q.Checkpoint), MaxCheckpoint)
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

// CheckGuards returns nil if a record may name these targets, or an error that
// matches fence.ErrInvalid.
func CheckGuards(targets []string) error {
	if len(targets) > MaxGuards {
		return fmt.Errorf("%w guards: %d named, at most %d are allowed", fence.ErrInvalid, len(targets), MaxGuards)
	}
	for _, g := range targets {
		if g == "" {
			return fmt.Errorf("%w guard: an empty target", fence.ErrInvalid)
		}
		if err := checkText("guard", g, MaxText); err != nil {
			return err
		}
	}
	return nil
}

// validPeriod reports whether a request may ask for this period.
func validPeriod(d time.Duration) bool { return d >= 0 && d <= MaxPeriod || d == Once }

// checkText makes sure that a text fits on one line of a listing: bounded,
// valid UTF-8, without control characters.
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
