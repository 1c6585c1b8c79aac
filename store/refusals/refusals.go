// Package refusals records in a store which acts of former owners were refused,
// which would have been refused (see [Observed]), and which the store could not
// be asked about (see [Unsure]). It is for operators: "croft inventory" and
// "croft watch" show the refusals.
//
// Refusals are not kept in the records of their own keys, because a wrong grant
// must change nothing there. Each refusal is the note of an operator's act on a
// [Reserved] key. So the law keeps only the latest ones, the store forgets them
// with the reserved record, and no backend needs code for them. Each [Kind] has
// reserved keys of its own, so that many of one kind do not push out another.
// So have refusals whose owner the store does not know: anybody can make up
// stamps, and must not push out the refusals of owners.
//
// A [Recorder] records refusals in the background. It has at most one
// goroutine, which runs while refusals wait. A mutex guards the waiting
// refusals and the goroutine's state. No call of the store is made under it.
// Close lets the goroutine finish, but not for long, and then cancels its
// calls.
package refusals

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Refusal is one refused request or write of a former owner, as the store
// remembers it.
type Refusal struct {
	// At is when the refusal was recorded, on the store's clock.
	At time.Time
	// Key and Token come from the refused request or stamp.
	Key   string
	Token fence.Token
	// Owner is the owner who presented them. It is "" if the store does not
	// know: it remembers no such grant for this token.
	Owner string
	// Act names the refused act: write, renew, report or release.
	Act string
	// Code says why: stale, collision, wrong_key, repeated or not_owned. It is
	// unsure if the store could not be asked.
	Code string
	// Admitted is set if the write was let in all the same; see [Observed] and
	// [Unsure].
	Admitted bool
	// Newest is the current token, if it is known.
	Newest fence.Token
	// Target is the guard of a write.
	Target string
	// Count is the number of equal refusals that this one stands for, at least
	// 1.
	Count int
	// Total is the number of refusals with the same Key, Act, Code, Admitted
	// and Target since Since, this one included. Those of a known owner are
	// counted apart from the others. Two processes that record at the same
	// moment may count too few.
	Total int
	Since time.Time

	grant fence.Grant // from the request or stamp; the store does not keep it
}

// Kind says what became of the act.
type Kind string

// The kinds of refusals. Each name is also the change that "croft watch" shows.
const (
	// Refused: the act was refused.
	Refused Kind = "refused"
	// Observed: the write would have been refused. It was let in, because the
	// boundary only observes.
	Observed Kind = "observed"
	// Unsure: the store could not be asked whether the writer was the current
	// owner. Admitted tells whether the write was let in or refused.
	Unsure Kind = "unsure"
)

// codeUnsure is the code of refusals of the kind Unsure.
const codeUnsure = "unsure"

// Kind returns the kind of a refusal.
func (r Refusal) Kind() Kind {
	switch {
	case r.Code == codeUnsure:
		return Unsure
	case r.Admitted:
		return Observed
	}
	return Refused
}

// rootPrefix begins all reserved keys.
const rootPrefix = "croft."

// roots are the keys for the refusals of keys without a namespace. They are
// also the namespaces of the keys for all other refusals, one key for each
// namespace. There is a root for each kind, and one for refusals of an unknown
// owner.
var roots = []string{
	rootPrefix + string(Refused), rootPrefix + string(Observed), rootPrefix + string(Unsure), unknownRoot,
}

const unknownRoot = rootPrefix + "unknown"

// Reserved reports whether refusals are kept under a key. No lease can be taken
// on such a key, and listings for people leave it out.
func Reserved(key string) bool {
	return slices.Contains(roots, key) || slices.Contains(roots, fence.Namespace(key))
}

// CheckKey returns an error if a key is reserved.
func CheckKey(key string) error {
	if Reserved(key) {
		return fmt.Errorf("%w key %q: Croft keeps there what was refused; choose another name", fence.ErrInvalid, key)
	}
	return nil
}

// reservedFor returns the key under which the refusals of a key are kept, below
// a root.
func reservedFor(root, key string) string {
	if namespace := fence.Namespace(key); namespace != "" {
		return root + "/" + namespace
	}
	return root
}

// reserved returns the key under which a refusal is kept.
func (r Refusal) reserved() string {
	if r.Owner == "" {
		return reservedFor(unknownRoot, r.Key)
	}
	return reservedFor(rootPrefix+string(r.Kind()), r.Key)
}

// maxGets is how many reserved records [Read] gets one by one, because the
// listing leaves out their history. There are a few for each namespace.
const maxGets = 256

// Read returns the remembered refusals of keys that begin with prefix, the
// oldest first. The empty prefix means all keys. If very many namespaces have
// refusals, it returns only the last one of those whose last one is older than
// that of the others.
//
// With an error it also returns the refusals that it could read. A damaged
// record does not hide the others: then [store.OnlyDamaged] is true of the
// error.
func Read(ctx context.Context, st store.Store, prefix string) ([]Refusal, error) {
	return ReadSince(ctx, st, prefix, time.Time{})
}

// ReadSince is Read for refusals after since. It gets no records that have
// none.
func ReadSince(ctx context.Context, st store.Store, prefix string, since time.Time) ([]Refusal, error) {
	var all []Refusal
	var err error
	if fence.Namespace(prefix) != "" {
		all, err = readNamespace(ctx, st, prefix)
	} else {
		all, err = readAll(ctx, st, since)
	}
	all = slices.DeleteFunc(all, func(r Refusal) bool {
		return !strings.HasPrefix(r.Key, prefix) || !r.At.After(since)
	})
	slices.SortStableFunc(all, func(x, y Refusal) int {
		return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Key, y.Key))
	})
	return all, err
}

// readNamespace reads the records for the namespace of a prefix.
func readNamespace(ctx context.Context, st store.Store, prefix string) (all []Refusal, err error) {
	var failed failures.List
	for _, root := range roots {
		key := reservedFor(root, prefix)
		if fence.CheckKey(key) != nil {
			continue // too long: it cannot have been recorded
		}
		rec, err := st.Get(ctx, key)
		if err != nil {
			failed.Add(err)
			if !errors.Is(err, store.ErrDamaged) {
				break // another question would fare no better
			}
		}
		all = append(all, In(rec)...)
	}
	return all, failed.Err()
}

// readAll reads the records for all namespaces. It gets those that have come
// last, and of the others takes the newest refusal, which the listing has.
func readAll(ctx context.Context, st store.Store, since time.Time) (all []Refusal, err error) {
	var failed failures.List
	var short []tenure.Record // records without their history
	for rec, err := range st.List(ctx, rootPrefix) {
		switch {
		case err != nil:
			failed.Add(err)
		case !Reserved(rec.Key) || !rec.Acquired.After(since): // the name only begins like ours, or nothing is new
		case len(rec.History) > 0:
			all = append(all, In(rec)...)
		default:
			short = append(short, rec)
		}
	}
	slices.SortFunc(short, func(x, y tenure.Record) int { return y.Acquired.Compare(x.Acquired) })
	for n, rec := range short {
		if n < maxGets {
			whole, err := st.Get(ctx, rec.Key)
			if err != nil {
				failed.Add(err)
				if !errors.Is(err, store.ErrDamaged) {
					break // another question would fare no better
				}
			}
			if err == nil && !whole.IsZero() {
				rec = whole
			}
		}
		if len(rec.History) == 0 {
			rec = terms.Join(rec, nil)
		}
		all = append(all, In(rec)...)
	}
	return all, failed.Err()
}

// Sum is a number of refusals, and the times of the first and the last of them.
type Sum struct {
	Count       int
	Since, Last time.Time
}

// SumUp counts refusals. A series that goes on is counted from its beginning,
// also if only the newest refusals of it are among those given.
func SumUp(all []Refusal) Sum {
	type count struct{ total, seen int }
	counts := map[series]count{}
	var s Sum
	for _, r := range all {
		c := counts[r.series()]
		counts[r.series()] = count{max(c.total, r.Total), c.seen + r.Count}
		if s.Since.IsZero() || r.Since.Before(s.Since) {
			s.Since = r.Since
		}
		if r.At.After(s.Last) {
			s.Last = r.At
		}
	}
	for _, c := range counts {
		s.Count += max(c.total, c.seen)
	}
	return s
}

// In returns the refusals in a [Reserved] record, the oldest first. It leaves
// out notes that are no refusals.
func In(rec tenure.Record) []Refusal {
	var all []Refusal
	for _, term := range rec.History {
		var n note
		if !Reserved(rec.Key) || json.Unmarshal([]byte(term.Note), &n) != nil || n.Key == "" {
			continue
		}
		r := Refusal{
			At: term.Acquired, Key: n.Key, Token: n.Token, Owner: term.Actor, Act: n.Act, Code: n.Code,
			Admitted: n.Admitted, Newest: n.Newest, Target: n.Target, Count: max(n.Count, 1), Since: term.Acquired,
		}
		r.Total = max(n.Total, r.Count)
		if n.Since != 0 {
			r.Since = time.Unix(n.Since, 0).UTC()
		}
		if r.Owner == unknownOwner {
			r.Owner = ""
		}
		all = append(all, r)
	}
	return all
}

// note is the JSON form of a refusal in the note of an operator's act.
type note struct {
	Act      string      `json:"act"`
	Code     string      `json:"code"`
	Admitted bool        `json:"admitted,omitempty"`
	Key      string      `json:"key"`
	Token    fence.Token `json:"token"`
	Newest   fence.Token `json:"newest,omitempty"`
	Target   string      `json:"target,omitempty"`
	Count    int         `json:"count,omitempty"`
	Total    int         `json:"total,omitempty"`
	Since    int64       `json:"since,omitempty"` // in seconds since 1970
}

// unknownOwner is the actor if the store does not know the owner of the token.
// An act must have an actor.
const unknownOwner = "?"

// request makes the act that records a refusal. If the note is too long, it
// leaves out the target. If it is still too long, it returns an error.
func (r Refusal) request() (tenure.Request, error) {
	n := note{
		Act: r.Act, Code: r.Code, Admitted: r.Admitted, Key: r.Key, Token: r.Token, Newest: r.Newest,
		Target: store.Redact(r.Target),
	}
	if r.Count > 1 {
		n.Count = r.Count
	}
	if r.Total > r.Count {
		n.Total = r.Total
	}
	if !r.Since.IsZero() {
		n.Since = r.Since.Unix()
	}
	req := tenure.Request{
		Verb: tenure.Revoke, Key: r.reserved(), Secret: tenure.NewSecret(),
		Actor: cmp.Or(r.Owner, unknownOwner),
	}
	var err error
	for range 2 {
		var text []byte
		if text, err = json.Marshal(n); err != nil {
			return req, err
		}
		req.Note = string(text)
		if err = req.Check(); err == nil {
			break
		}
		n.Target = ""
	}
	return req, err
}

// Noted returns the key that a note is about. ok is false if the request leaves
// no note of a refusal.
func Noted(req tenure.Request) (key string, ok bool) {
	var n note
	if req.Verb != tenure.Revoke || !Reserved(req.Key) || json.Unmarshal([]byte(req.Note), &n) != nil ||
		fence.CheckKey(n.Key) != nil {
		return "", false
	}
	for _, root := range roots {
		if req.Key == reservedFor(root, n.Key) {
			return n.Key, true
		}
	}
	return "", false
}

// Of makes a refusal of an error. ok is false if the error is no refusal by a
// fence or by the law.
func Of(stamp fence.Stamp, target string, err error) (r Refusal, ok bool) {
	r = Refusal{Key: stamp.Key, Token: stamp.Token, grant: stamp.Grant, Act: "write", Target: target, Count: 1}
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var notOwned *tenure.NotOwnedError
	switch {
	case errors.As(err, &stale):
		r.Newest, r.Owner = stale.Newest.Token, stale.PresentedOwner
	case errors.As(err, &refused):
		r.Newest = refused.Mark.Token
	case errors.As(err, &notOwned):
		// The owner itself released the lease, perhaps in another process. That
		// is how a lease is meant to end.
		if notOwned.Why == tenure.WhyReleased {
			return r, false
		}
		r.Newest = notOwned.Record.Token
	}
	for _, code := range []struct {
		match error
		name  string
	}{
		{fence.ErrStale, "stale"},
		{fence.ErrCollision, "collision"},
		{fence.ErrWrongKey, "wrong_key"},
		{fence.ErrRepeated, "repeated"},
		{tenure.ErrNotOwned, "not_owned"},
	} {
		if errors.Is(err, code.match) {
			r.Code = code.name
			return r, fence.CheckKey(r.Key) == nil && !Reserved(r.Key)
		}
	}
	return r, false
}

// OfUnsure makes a refusal of kind [Unsure]. ok is false if the stamp's key can
// have no refusals.
func OfUnsure(stamp fence.Stamp, target string, admitted bool) (r Refusal, ok bool) {
	return Refusal{
		Key: stamp.Key, Token: stamp.Token, grant: stamp.Grant, Act: "write", Code: codeUnsure, Admitted: admitted,
		Target: target, Count: 1,
	}, fence.CheckKey(stamp.Key) == nil && !Reserved(stamp.Key)
}
