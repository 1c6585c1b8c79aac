// Package current finds out whether a stamp's owner is the current one.
//
// A guard's mark refuses a stamp that is older than the newest one admitted at
// the resource. An owner that was replaced still has the newest stamp there
// until its successor writes. The lease store knows better. [Ask] asks it once.
// A [Follower] is for boundaries that see many writes: it asks rarely, and
// keeps the answers while they are good.
//
//   - A token below the newest that the store has named is never current again.
//     The follower refuses it without asking.
//   - The newest grant is current until its deadline. The follower listens for
//     operators' acts ([store.Announcer]) and asks again after one. It asks
//     again after Options.MaxAge in any case, because acts can be missed, and
//     because releases are not announced.
//   - While the store announces nothing, an answer is good for
//     Options.MaxSilentAge.
//   - A token above the newest one known belongs to a new owner, or was made
//     up. The follower asks.
//
// Callers that ask about the same key at the same time share one question.
//
// # Goroutines
//
// One goroutine listens for acts, if the source is a [store.Announcer]. Each
// question to the source is a goroutine of its own. At most one question per
// key is under way, and at most 64 read from the source at once. A caller waits
// for its question until its own context ends or the question times out. One
// mutex guards everything that the follower knows. No call of the source is
// made under it. Close ends the goroutines, and waits for them at most one
// timeout.
//
// # What an answer is worth
//
// An answer can be a moment old: a takeover may happen between the answer and
// the write. The mark is checked in one step with the write, so it never is.
// A boundary therefore asks both. The mark alone keeps the law that no write
// follows a newer owner's. The current check also refuses a replaced owner
// whose successor has not come yet, and a stamp that no store has issued.
package current
