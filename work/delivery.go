package work

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Taking asks for effects to deliver. The dispatcher works under a lease, and
// presents its stamp. A ledger keeps a mark for every stamp key, and admits
// each Taking and Settlement by it ([fence.Mark.Admit]), in the same
// transaction. So an older dispatcher is shut out as soon as a newer one has
// taken anything.
type Taking struct {
	// Stamp is the stamp of the dispatcher's lease. It has no Seq.
	Stamp fence.Stamp
	// To lists the destinations to deliver to; empty means all.
	To []string
	// Ordered takes the effects for one destination in the order in which they
	// were created, one at a time: at most the first that is not yet sent or
	// failed. So whichever dispatchers there are, at most one effect for the
	// destination is under way. An effect that waits for another attempt holds
	// up those after it. An effect whose fate is unknown holds up all others,
	// even an earlier effect that an operator makes pending again. Effects of
	// transactions that overlap have no order.
	Ordered bool
	// Limit is the largest number of effects to take: 0 to MaxClaim. 0 only
	// raises the mark, and so shuts out older dispatchers.
	Limit int
	// Hold is how long the dispatcher may take to settle them. After that they
	// are orphaned.
	Hold time.Duration
}

// Check returns nil if the taking is valid, or an error that matches
// fence.ErrInvalid.
func (q Taking) Check() error {
	if err := q.Stamp.Check(); err != nil {
		return err
	}
	if q.Stamp.Seq != 0 {
		return fmt.Errorf("%w stamp: a dispatcher's has no sequence", fence.ErrInvalid)
	}
	for _, to := range q.To {
		if err := checkName("destination", to, MaxEffectName); err != nil {
			return err
		}
	}
	if q.Ordered && len(q.To) != 1 {
		return fmt.Errorf("%w taking in order for %d destinations: name one", fence.ErrInvalid, len(q.To))
	}
	if q.Limit < 0 || q.Limit > MaxClaim {
		return fmt.Errorf("%w taking of %d effects: it must be between 0 and %d", fence.ErrInvalid, q.Limit, MaxClaim)
	}
	if q.Hold <= 0 || q.Hold > tenure.MaxTTL {
		return fmt.Errorf("%w hold %s: it must be between 0 and %s", fence.ErrInvalid, q.Hold, tenure.MaxTTL)
	}
	return nil
}

// Admit decides about the taking as a whole. It returns the mark to keep, the
// refusal to record (nil if there is none), and the error for the dispatcher.
func (q Taking) Admit(mark fence.Mark, now time.Time) (fence.Mark, *Refusal, error) {
	if err := q.Check(); err != nil {
		return mark, nil, err
	}
	if err := fence.CheckAhead(q.Stamp.Token, now); err != nil {
		return mark, nil, err
	}
	next, err := mark.Admit(q.Stamp)
	return next, refusalOf(err, VerbTake, "", "", tenure.Time(now)), err
}

// Takes reports whether an admitted taking may take the effect at now. A taking
// takes the first Limit of them, in the order of [Effect.Before].
func (q Taking) Takes(e Effect, now time.Time) bool {
	return e.State == Pending && !e.Ready.After(tenure.Time(now)) && (len(q.To) == 0 || slices.Contains(q.To, e.To))
}

// Next returns the effect that an ordered taking may take of all effects, if
// there is one. Otherwise it returns the effect that holds up the others.
func (q Taking) Next(all iter.Seq[Effect], now time.Time) (next Effect, ok bool) {
	for e := range all {
		switch {
		case !slices.Contains(q.To, e.To) || e.State != Pending && e.State != Unknown:
		case next.IsZero(), e.State == Unknown && next.State == Pending,
			e.State == next.State && e.Precedes(next):
			next = e
		}
	}
	return next, q.Limit > 0 && q.Takes(next, now)
}

// Take returns the effect as the ledger keeps it after a taking has taken it.
// It is unknown until it is settled, because from now on nobody can say whether
// it has been delivered.
func Take(e Effect, q Taking, now time.Time) Effect {
	now = tenure.Time(now)
	e.State, e.Attempts, e.Sender, e.Ready = Unknown, e.Attempts+1, q.Stamp.Token, now.Add(whole(q.Hold))
	return e
}

// Before reports whether the effect is taken before the other: oldest Ready
// first, then by identity.
func (e Effect) Before(other Effect) bool {
	if !e.Ready.Equal(other.Ready) {
		return e.Ready.Before(other.Ready)
	}
	return e.Compare(other.EffectID) < 0
}

// Precedes reports whether the effect comes before the other in an ordered
// destination: first created first, then by identity.
func (e Effect) Precedes(other Effect) bool {
	if !e.Created.Equal(other.Created) {
		return e.Created.Before(other.Created)
	}
	return e.Compare(other.EffectID) < 0
}

// Settlement says how one delivery ended. A dispatcher's settlement has its
// stamp. One by an operator or the reconciler has an actor and a note instead.
// Both are a compare and swap on Attempt. Several copies have the effect of
// one.
type Settlement struct {
	Effect EffectID
	// Attempt is the number of the delivery: the Attempts of the effect as it
	// was read.
	Attempt int
	// State is the effect's new state: Sent; Pending, to be tried again after
	// Delay; Failed; or Unknown, which only records the Error.
	State EffectState
	Delay time.Duration
	Error string // why the delivery failed

	Stamp       fence.Stamp
	Actor, Note string
}

// Check returns nil if the settlement is valid, or an error that matches
// fence.ErrInvalid.
func (s Settlement) Check() error {
	if err := s.Effect.Check(); err != nil {
		return err
	}
	if !slices.Contains(EffectStates, s.State) {
		return fmt.Errorf("%w effect state %.40q", fence.ErrInvalid, s.State)
	}
	if s.Attempt < 0 {
		return fmt.Errorf("%w delivery %d: they are numbered from 1", fence.ErrInvalid, s.Attempt)
	}
	if err := checkDelay("delay", s.Delay); err != nil {
		return err
	}
	if err := checkError(s.Error); err != nil {
		return err
	}
	if s.ByHand() {
		if strings.TrimSpace(s.Actor) == "" || strings.TrimSpace(s.Note) == "" {
			return fmt.Errorf("%w settlement: it needs a dispatcher's stamp, or an actor and a note that says why",
				fence.ErrInvalid)
		}
	} else if err := s.Stamp.Check(); err != nil {
		return err
	} else if s.Stamp.Seq != 0 {
		return fmt.Errorf("%w stamp: a dispatcher's has no sequence", fence.ErrInvalid)
	}
	if err := checkName("actor", s.Actor, tenure.MaxName); err != nil {
		return err
	}
	return checkName("note", s.Note, tenure.MaxText)
}

// ByHand reports whether the settlement has no dispatcher's stamp.
func (s Settlement) ByHand() bool { return s.Stamp == fence.Stamp{} }

// EffectOutcome is what the law makes of a settlement. A ledger writes all of
// it in one transaction.
type EffectOutcome struct {
	Effect  Effect
	Changed bool
	Mark    fence.Mark // to keep for the stamp's key, if there is a stamp
	Refusal *Refusal
}

// Settle is the law of settling. It takes the effect, or zero if the ledger
// remembers none. It takes the mark kept for the stamp's key, or zero if there
// is no stamp. And it takes the settlement and the ledger's time.
//
// Sent is final. A dispatcher may settle the delivery that it made, even if the
// effect has become pending again since, as long as nobody has taken it again:
// it knows what happened. An operator may settle pending, unknown and failed
// effects, as long as nobody has taken them again. The errors are
// [*NotFoundError], [*StateError], or as [fence.Mark.Admit] returns them.
func Settle(e Effect, mark fence.Mark, s Settlement, now time.Time) (EffectOutcome, error) {
	as := EffectOutcome{Effect: e, Mark: mark}
	if err := s.Check(); err != nil {
		return as, err
	}
	now = tenure.Time(now)
	next := mark
	if !s.ByHand() {
		err := fence.CheckAhead(s.Stamp.Token, now)
		if err != nil {
			return as, err
		}
		if next, err = mark.Admit(s.Stamp); err != nil {
			as.Refusal = refusalOf(err, VerbSettle, e.Queue, s.Effect.Item, now)
			return as, err
		}
	}
	refuse := func(why string) (EffectOutcome, error) {
		return as, &StateError{
			What: "settle as " + string(s.State), Of: "effect " + s.Effect.String(), State: string(e.State), Why: why,
		}
	}
	repeated := e.Attempts == s.Attempt && e.State == s.State && e.Error == s.Error && !e.Settled.IsZero()
	switch {
	case e.IsZero():
		return as, &NotFoundError{What: "effect " + s.Effect.String()}
	case repeated && (s.ByHand() && e.Actor == s.Actor && e.Note == s.Note ||
		!s.ByHand() && e.Sender == s.Stamp.Token):
		as.Mark = next
		return as, nil
	case e.State == Sent:
		return refuse("it has been delivered")
	case e.Attempts != s.Attempt:
		return refuse(fmt.Sprintf("delivery %d is not its newest, which is %d; look again", s.Attempt, e.Attempts))
	case !s.ByHand() && e.Sender != s.Stamp.Token:
		return refuse("another dispatcher took it")
	case !s.ByHand() && e.State == Failed:
		return refuse("it has been given up; an operator may make it pending again")
	}
	e.State, e.Error, e.Settled = s.State, s.Error, now
	if s.State == Pending {
		e.Ready = now.Add(whole(s.Delay))
	}
	if s.ByHand() {
		e.Actor, e.Note = s.Actor, s.Note
	}
	return EffectOutcome{Effect: e, Changed: true, Mark: next}, nil
}
