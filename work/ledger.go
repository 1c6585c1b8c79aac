package work

import (
	"context"
	"iter"
	"time"

	"github.com/croft-dev/croft/store"
)

// Operations are the calls that concern items. A [Ledger] has them, and carries
// out each call in a transaction of its own. A ledger in a database also offers
// them inside the caller's transaction, through a method of the backend's type
// (In; or InSQL for database/sql on PostgreSQL):
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback()
//	answers := ledger.In(tx).Apply(ctx, []work.Request{
//		{Verb: work.Complete, …},
//	})
//	if err := answers[0].Err; err != nil {
//		return err // refused: roll back, nothing of this attempt counts
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// Inside a transaction, an item's row stays locked from the first look at it
// until the transaction ends. So nobody can take the item between the check and
// the commit.
//
// A refusal leaves the transaction usable. After an error that matches
// ErrUnknown, roll it back. A rollback undoes everything, the record of a
// refusal included. If the outcome of the commit is unknown, send the same
// requests again, in a transaction or outside. An owner that has completed is
// then told so.
type Operations interface {
	// Apply carries out requests, each as one atomic step. It decides by
	// [Apply], with the ledger's clock read after the item is locked. The item,
	// effects and refusal that the law returns are written in one transaction
	// with the decision.
	//
	// A batch saves round trips. It is not one transaction: each request stands
	// for itself, though a ledger may carry out all of them in one. Requests on
	// one item are carried out in their order.
	//
	// Apply returns exactly one answer per request, in order. It returns soon
	// after ctx ends. Requests without an answer by then get an error that
	// matches ErrUnknown.
	Apply(ctx context.Context, requests []Request) []Answer

	// Claim takes items by the laws in [Grant], [Turns] and [Gate]. It returns
	// them in the order of Turns, with payload and checkpoint, possibly without
	// the history of their records. No item is granted to two claims. Claims
	// from queues without rules do not wait for each other's locks.
	//
	// No items and no error means that nothing is ready. An error that matches
	// neither ErrInvalid nor the end of ctx matches ErrUnknown: claim again
	// with the same secret and Again set.
	Claim(ctx context.Context, c Claim) ([]Item, error)

	// Get returns an item with everything the ledger remembers of it, or a
	// [*NotFoundError].
	Get(ctx context.Context, id ID) (Item, error)
}

// Ledger keeps items, effects and refusals. Its methods are safe for concurrent
// use.
type Ledger interface {
	Operations

	// Take takes effects for delivery, by the law in [Taking.Admit],
	// [Taking.Takes] and [Take]. It returns them with their bodies, in the
	// order of [Effect.Before]. If the ledger refuses the stamp, it records the
	// refusal, returns it as the error, and takes nothing.
	Take(ctx context.Context, q Taking) ([]Effect, error)
	// Settle carries out settlements by the law in [Settle]. Each is one atomic
	// step, as Apply does for requests.
	Settle(ctx context.Context, settlements []Settlement) []EffectAnswer

	// List yields the items that match, ordered by ID. They may lack payload,
	// checkpoint, result and the history of their records. It stops after the
	// first error.
	List(ctx context.Context, q Query) iter.Seq2[Item, error]
	// Effects yields the effects that match, with all fields, ordered by item,
	// generation and name.
	Effects(ctx context.Context, q EffectQuery) iter.Seq2[Effect, error]
	// Refusals yields the refusals that match, newest first.
	Refusals(ctx context.Context, q RefusalQuery) iter.Seq2[Refusal, error]
	// Stats counts items, effects and refusals by queue, ordered by name. It
	// lists only queues that have any; with a queue named, at most that one. It
	// does not count the refusals of a dispatcher's Take, which belong to no
	// queue. [Query.Check] says which queue names are refused.
	Stats(ctx context.Context, queue string) ([]Stats, error)

	// Govern changes a rule by the law in [Govern], and returns it. Every claim
	// that begins after Govern has returned is bound by the rule.
	Govern(ctx context.Context, c RuleChange) (Rule, error)
	// Rules yields the rules that match, ordered by queue and partition, also
	// those that no longer restrict anything: they say who lifted them, and
	// why.
	Rules(ctx context.Context, q RuleQuery) iter.Seq2[Rule, error]

	// Prune forgets what [Retention] no longer keeps: at most limit items with
	// their effects, and at most limit refusals. It returns how many. Less than
	// limit means that nothing more can be forgotten now.
	Prune(ctx context.Context, r Retention, limit int) (Pruned, error)

	// Now returns the time on the ledger's clock. Compare times in items with
	// it.
	Now(ctx context.Context) (time.Time, error)
	// Close releases the ledger's connections and files. It gives no item back.
	Close() error
}

// Answer is the outcome of one request.
type Answer struct {
	// Item is the item after the request, or as it stands if the request was
	// refused. It is zero if there is no item or the outcome is unknown.
	//
	// For Add it is the stored item. Its ID differs from the request's if the
	// idempotency key belonged to another item.
	//
	// At least these fields are set: ID, Queue, State, Attempts, Limit and
	// Generation; the record's Token, Grant, Owner, State, Cause, Ended and
	// Deadline; and Result if Repeated is true. For an operator's act and for
	// Requeue so are Guards, and the record's Terms and History. Others may be
	// missing, but are never wrong.
	Item Item
	// Repeated says that nothing was written, because an earlier copy of the
	// request had already taken effect.
	Repeated bool
	// Now is the ledger's time at the decision. It is zero if the outcome is
	// unknown or the input invalid.
	Now time.Time
	// Err is nil if the request took effect, now or before. Otherwise it is an
	// error as [Apply] returns it, or matches ErrUnknown.
	Err error
}

// EffectAnswer is the outcome of one settlement. Of Effect at least the
// identity, State, Attempts, Sender and Ready are set.
type EffectAnswer struct {
	Effect   Effect
	Repeated bool
	Now      time.Time
	Err      error
}

// FailedAnswers returns n answers that all say: the outcome is unknown, because
// of err.
func FailedAnswers(n int, err error) []Answer {
	answers := make([]Answer, n)
	for i := range answers {
		answers[i].Err = store.Unknown(err)
	}
	return answers
}

// FailedEffects is FailedAnswers for n settlements.
func FailedEffects(n int, err error) []EffectAnswer {
	answers := make([]EffectAnswer, n)
	for i := range answers {
		answers[i].Err = store.Unknown(err)
	}
	return answers
}

// Waker is a ledger that can wake waiting workers. A ledger that has the method
// but cannot wake returns an error that matches errors.ErrUnsupported.
type Waker interface {
	// Wake returns a channel that receives soon after something may have become
	// ready: an item in one of the queues, or an effect if Effects is set.
	//
	// A wake-up is a hint; the next claim finds out. Several changes may share
	// one wake-up. An item that becomes ready only because time passes need not
	// cause one. The channel is closed when ctx ends or the hints break.
	// Callers must poll as well.
	Wake(ctx context.Context, w Wanted) (<-chan struct{}, error)
}

// Wanted says what a caller of Wake waits for.
type Wanted struct {
	Queues  []string
	Effects bool
}
