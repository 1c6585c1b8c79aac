// Package refusals remembers, in a store, what was refused to owners that no
// longer count. It is for operators: "croft inventory" and "croft watch" show it.
//
// Refusals are kept apart from the keys that they are about, because a wrong
// grant must change nothing there. Each is the note of an operator's act on a
// reserved key. So the law keeps the last of them, the store forgets them with
// the record, and no backend knows of them.
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
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Refusal is something that was refused because it came from an owner that no
// longer counts, as the store remembers it.
type Refusal struct {
	// At is when it was recorded, on the store's clock.
	At time.Time
	// Key and Token are those presented.
	Key   string
	Token fence.Token
	// Owner is who presented them, "" if the store does not know: the grant is none that it remembers for this token.
	Owner string
	// Act is what was refused: write, renew, report or release.
	Act string
	// Code says why: stale, collision, wrong_key, repeated or not_owned.
	Code string
	// Newest is the token that counts instead, if it is known.
	Newest fence.Token
	// Target is the guard of a write.
	Target string
	// Count is how many like it this one stands for, at least 1.
	Count int

	grant fence.Grant // presented; it is not remembered
}

// space begins the keys under which refusals are remembered: one key for each
// namespace.
const space = "croft.refused"

// Reserved reports whether a key is one under which refusals are remembered. No
// lease can be taken on it, and listings for people leave it out.
func Reserved(key string) bool { return key == space || fence.Namespace(key) == space }

// CheckKey refuses reserved keys.
func CheckKey(key string) error {
	if Reserved(key) {
		return fmt.Errorf("%w key %q: Croft keeps there what was refused; choose another name", fence.ErrInvalid, key)
	}
	return nil
}

// keyOf is where the refusals of a key are remembered.
func keyOf(key string) string {
	if namespace := fence.Namespace(key); namespace != "" {
		return space + "/" + namespace
	}
	return space
}

// Read reads what is remembered of refusals to keys that begin with prefix (the empty prefix: all), the oldest first.
func Read(ctx context.Context, st store.Store, prefix string) ([]Refusal, error) {
	var all []Refusal
	get := func(key string) error {
		if fence.CheckKey(key) != nil {
			return nil // too long to have been recorded
		}
		rec, err := st.Get(ctx, key)
		if err == nil {
			all = append(all, In(rec)...)
		}
		return err
	}
	if fence.Namespace(prefix) != "" {
		if err := get(keyOf(prefix)); err != nil {
			return nil, err
		}
	} else {
		for rec, err := range st.List(ctx, strings.TrimSuffix(space+"/"+prefix, "/")) {
			switch {
			case err != nil:
				return nil, err
			case !Reserved(rec.Key): // one that only begins so
			case len(rec.History) > 0:
				all = append(all, In(rec)...)
			default: // a listing need not bring it
				if err := get(rec.Key); err != nil {
					return nil, err
				}
			}
		}
		if prefix != "" { // keys of one segment
			if err := get(space); err != nil {
				return nil, err
			}
		}
	}
	all = slices.DeleteFunc(all, func(r Refusal) bool { return !strings.HasPrefix(r.Key, prefix) })
	slices.SortStableFunc(all, func(x, y Refusal) int { return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Key, y.Key)) })
	return all, nil
}

// In are the refusals that a [Reserved] record remembers, the oldest first. What is not one is left out.
func In(rec tenure.Record) []Refusal {
	var all []Refusal
	for _, term := range rec.History {
		var n note
		if !Reserved(rec.Key) || json.Unmarshal([]byte(term.Note), &n) != nil || n.Key == "" {
			continue
		}
		r := Refusal{At: term.Acquired, Key: n.Key, Token: n.Token, Owner: term.Actor, Act: n.Act, Code: n.Code, Newest: n.Newest, Target: n.Target, Count: max(n.Count, 1)}
		if r.Owner == nobodyKnown {
			r.Owner = ""
		}
		all = append(all, r)
	}
	return all
}

// note is a refusal as the note of an operator's act.
type note struct {
	Act    string      `json:"act"`
	Code   string      `json:"code"`
	Key    string      `json:"key"`
	Token  fence.Token `json:"token"`
	Newest fence.Token `json:"newest,omitempty"`
	Target string      `json:"target,omitempty"`
	Count  int         `json:"count,omitempty"`
}

// nobodyKnown is the actor when the store does not know whose token it was: an act must have one.
const nobodyKnown = "?"

// request is the act that records a refusal. One that does not fit loses its target; one that does not fit even then cannot be recorded.
func (r Refusal) request() (tenure.Request, error) {
	n := note{Act: r.Act, Code: r.Code, Key: r.Key, Token: r.Token, Newest: r.Newest, Target: store.Redact(r.Target)}
	if r.Count > 1 {
		n.Count = r.Count
	}
	req := tenure.Request{Verb: tenure.Revoke, Key: keyOf(r.Key), Secret: tenure.NewSecret(), Actor: cmp.Or(r.Owner, nobodyKnown)}
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

// Of makes a refusal of an error. ok is false if the error is no refusal of a
// fence or of the law.
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
		if notOwned.Why == tenure.WhyReleased { // by whoever holds it, at another place: that is how it is meant to end
			return r, false
		}
		r.Newest = notOwned.Record.Token
	}
	for _, code := range []struct {
		match error
		name  string
	}{
		{fence.ErrStale, "stale"}, {fence.ErrCollision, "collision"}, {fence.ErrWrongKey, "wrong_key"}, {fence.ErrRepeated, "repeated"}, {tenure.ErrNotOwned, "not_owned"},
	} {
		if errors.Is(err, code.match) {
			r.Code = code.name
			return r, fence.CheckKey(r.Key) == nil && !Reserved(r.Key)
		}
	}
	return r, false
}
