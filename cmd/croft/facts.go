package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// facts is a JSON object that keeps the order of its names. Adding a name again
// replaces its value, in its first place.
type facts []fact

type fact struct {
	name  string
	value any
}

func (f *facts) add(name string, value any) {
	for i := range *f {
		if (*f)[i].name == name {
			(*f)[i].value = value
			return
		}
	}
	*f = append(*f, fact{name, value})
}

// MarshalJSON writes the object.
func (f facts) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, each := range f {
		b.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(each.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(each.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// factsOf returns details of an error for JSON output, such as the key's
// present owner and the stamp that was refused.
func factsOf(err error) facts {
	var f facts
	var guarded *croft.GuardError
	if errors.As(err, &guarded) {
		f.add("target", store.Redact(guarded.Target))
	}
	var lost *croft.LostError
	if errors.As(err, &lost) {
		f.add("key", lost.Key)
		f.add("token", lost.Token)
		f.add("why", lost.Loss)
	}
	var held *tenure.HeldError
	if errors.As(err, &held) {
		f.addHolder(held.Record)
		f.add("why", held.Why)
		f.add("until", when(held.Until))
		f.add("remaining", held.Remaining().Round(time.Microsecond).String())
	}
	var notOwned *tenure.NotOwnedError
	if errors.As(err, &notOwned) {
		f.addHolder(notOwned.Record)
		f.add("why", notOwned.Why)
	}
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		f.addStamp(stale.Presented)
		f.add("newest", stale.Newest.Token)
		if stale.PresentedOwner != "" {
			f.add("owner", stale.PresentedOwner)
		}
		if stale.NewestOwner != "" {
			f.add("newest_owner", stale.NewestOwner)
		}
	}
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		f.addStamp(refused.Presented)
		f.add("seq", refused.Presented.Seq)
		f.add("mark", refused.Mark)
	}
	f.addWork(err)
	return f
}

func (f *facts) addStamp(s fence.Stamp) {
	f.add("key", s.Key)
	f.add("token", s.Token)
}

// addHolder adds the key, the token and the owner of a record.
func (f *facts) addHolder(rec tenure.Record) {
	if rec.IsZero() {
		return
	}
	f.addStamp(rec.Stamp())
	f.add("owner", rec.Owner)
	f.add("instance", rec.Instance)
}

// addWork adds details of a ledger's error.
func (f *facts) addWork(err error) {
	var state *work.StateError
	if errors.As(err, &state) {
		f.add("of", state.Of)
		f.add("state", state.State)
	}
	var conflict *work.ConflictError
	if errors.As(err, &conflict) {
		f.add("id", conflict.ID)
		f.add("queue", conflict.Queue)
		f.add("unique", conflict.Unique)
	}
	var limit *work.LimitError
	if errors.As(err, &limit) {
		f.add("size", limit.Size)
		f.add("most", limit.Most)
	}
}
