package work

import (
	"context"
	"iter"
	"time"

	"github.com/croft-dev/croft/store"
)

// Operations are the verbs that concern one item each. A [Ledger] has them, with a transaction of its own for every call. A ledger in a database also offers them inside the caller's own transaction, by a method of the
// backend's type that takes it (In for database/sql and pgx as the backend has them):
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback()
//	answers := ledger.In(tx).Apply(ctx, []work.Request{{Verb: work.Complete, …}})
//	if err := answers[0].Err; err != nil {
//		return err // refused: roll back, nothing of this attempt counts
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// Inside a transaction the row of an item that was looked at for a change stays locked until the transaction ends, so nobody can take the item between the check and the commit. A refusal leaves the transaction usable; an
// answer that matches ErrUnknown does not: roll it back. What is rolled back has not happened, the record of a refusal included. When the outcome of the commit is unknown, send the same requests again, in or outside of a
// transaction: who completed is told so.
type Operations interface {
	// Apply carries out requests, each one atomic step by the ledger's clock, read after the item is locked. What a request means is the law in [Apply] of this package; whatever it says is to be written
	// (item, effects, refusal) is written in one transaction with the decision. The batch is a convenience, not a transaction of its own: each request stands for itself, though a ledger may carry out all of them in one
	// transaction, and should in one round trip. Requests on one item are carried out in their order. It returns exactly one answer per request, in order, and returns soon after ctx ends: requests
	// without an answer by then are answered with an error matching ErrUnknown.
	Apply(ctx context.Context, requests []Request) []Answer

	// Claim takes items by the law in [Grant] and returns them in the order of Item.Before, with payload and checkpoint, possibly without the history of their records. No item is granted to two claims.
	// Claims do not wait for each other's locks. No items and no error means that nothing is ready. An error that matches neither ErrInvalid nor the end of ctx matches ErrUnknown: claim again with
	// the same secret and Again set.
	Claim(ctx context.Context, c Claim) ([]Item, error)

	// Get returns an item with all there is of it, or a [*NotFoundError].
	Get(ctx context.Context, id ID) (Item, error)
}

// Ledger keeps items, effects and refusals. All methods are safe for concurrent use.
type Ledger interface {
	Operations

	// Take takes effects for delivery by the law in [Taking.Admit], [Taking.Takes] and [Take], and returns them with their bodies in the order of Effect.Before. A refusal of the stamp is recorded and returned; then nothing was taken.
	Take(ctx context.Context, q Taking) ([]Effect, error)
	// Settle carries out settlements by the law in [Settle], each one atomic step, as Apply does for requests.
	Settle(ctx context.Context, settlements []Settlement) []EffectAnswer

	// List yields the items that match, ordered by ID, possibly without payload, checkpoint, result and the history of their records. It stops after the first error.
	List(ctx context.Context, q Query) iter.Seq2[Item, error]
	// Effects yields the effects that match, whole, ordered by item, generation and name.
	Effects(ctx context.Context, q EffectQuery) iter.Seq2[Effect, error]
	// Refusals yields the refusals that match, newest first.
	Refusals(ctx context.Context, q RefusalQuery) iter.Seq2[Refusal, error]
	// Stats counts, by queue, ordered by name. Only queues that have an item, an effect or a refusal are in it; with a queue named, at most that one. The refusal of a dispatcher as a whole is of no queue, and in none of them. A name that no queue can have is refused by [CheckSelected].
	Stats(ctx context.Context, queue string) ([]Stats, error)

	// Prune forgets what [Retention] lets go of: at most limit items with their effects, and at most limit refusals. It returns how many; less than limit means that nothing is left to forget now.
	Prune(ctx context.Context, r Retention, limit int) (Pruned, error)

	// Now is the ledger's clock: what times in items are to be compared with.
	Now(ctx context.Context) (time.Time, error)
	// Close lets go of what the ledger holds open. It gives no item back.
	Close() error
}

// Answer is the outcome of one request.
type Answer struct {
	// Item is the item after the request, or as it stands when the request was refused; zero if there is none or the outcome is unknown. For Add it is the item that there is, whose ID is not the request's if the
	// idempotency key belonged to it. It has at least ID, Queue, State, Attempts, Limit, Generation and of its Record Token, Grant, Owner, State, Cause, Ended and Deadline; when Repeated, also
	// Result. Whatever else it has is true.
	Item Item
	// Repeated says that nothing was written because the request's effect was there already.
	Repeated bool
	// Now is the ledger's time at the decision; zero if the outcome is unknown or the input bad.
	Now time.Time
	// Err is nil if the request took effect, now or before; otherwise as [Apply] has it, or it matches ErrUnknown.
	Err error
}

// EffectAnswer is the outcome of one settlement. Effect has at least its identity, State, Attempts, Sender and Ready.
type EffectAnswer struct {
	Effect   Effect
	Repeated bool
	Now      time.Time
	Err      error
}

// FailedAnswers answers every one of n requests with the same unknown outcome.
func FailedAnswers(n int, err error) []Answer {
	answers := make([]Answer, n)
	for i := range answers {
		answers[i].Err = store.Unknown(err)
	}
	return answers
}

// FailedEffects answers every one of n settlements with the same unknown outcome.
func FailedEffects(n int, err error) []EffectAnswer {
	answers := make([]EffectAnswer, n)
	for i := range answers {
		answers[i].Err = store.Unknown(err)
	}
	return answers
}

// Waker is a ledger that can wake who waits for work. One that has the method and cannot returns an error matching errors.ErrUnsupported.
type Waker interface {
	// Wake returns a channel that receives soon after something may have become ready: an item in one of the queues, or with Effects set an effect. Several changes may be one wake-up, and what becomes
	// ready by the passing of time alone need not be one. It is a hint: the truth is in the next claim. The channel is closed when ctx ends or the hints break; callers go on by polling.
	Wake(ctx context.Context, w Wanted) (<-chan struct{}, error)
}

// Wanted is what somebody waits for.
type Wanted struct {
	Queues  []string
	Effects bool
}
