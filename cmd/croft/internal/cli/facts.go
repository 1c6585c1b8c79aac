package cli

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

// Facts is a JSON object that keeps the order of its names. Adding a name again
// replaces its value, in its first position.
type Facts []fact

type fact struct {
	Name  string
	Value any
}

// Add adds a name with its value.
func (f *Facts) Add(name string, value any) {
	for i := range *f {
		if (*f)[i].Name == name {
			(*f)[i].Value = value
			return
		}
	}
	*f = append(*f, fact{name, value})
}

// MarshalJSON writes the object.
func (f Facts) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, each := range f {
		b.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(each.Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(each.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// factsOf returns details of an error for JSON output, such as the key's
// present owner and the stamp that was refused.
func factsOf(err error) Facts {
	var f Facts
	var guarded *croft.GuardError
	if errors.As(err, &guarded) {
		f.Add("target", store.Redact(guarded.Target))
	}
	var item *work.GuardError
	if errors.As(err, &item) {
		f.Add("target", store.Redact(item.Target))
	}
	var lost *croft.LostError
	if errors.As(err, &lost) {
		f.Add("key", lost.Key)
		f.Add("token", lost.Token)
		f.Add("why", lost.Loss)
	}
	var held *tenure.HeldError
	if errors.As(err, &held) {
		f.addHolder(held.Record)
		f.Add("why", held.Why)
		f.Add("until", When(held.Until))
		f.Add("remaining", held.Remaining().Round(time.Microsecond).String())
	}
	var notOwned *tenure.NotOwnedError
	if errors.As(err, &notOwned) {
		f.addHolder(notOwned.Record)
		f.Add("why", notOwned.Why)
	}
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		f.addStamp(stale.Presented)
		f.Add("newest", stale.Newest.Token)
		if stale.PresentedOwner != "" {
			f.Add("owner", stale.PresentedOwner)
		}
		if stale.NewestOwner != "" {
			f.Add("newest_owner", stale.NewestOwner)
		}
	}
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		f.addStamp(refused.Presented)
		f.Add("seq", refused.Presented.Seq)
		f.Add("mark", refused.Mark)
	}
	f.addWork(err)
	return f
}

func (f *Facts) addStamp(s fence.Stamp) {
	f.Add("key", s.Key)
	f.Add("token", s.Token)
}

// addHolder adds the key, the token and the owner of a record.
func (f *Facts) addHolder(rec tenure.Record) {
	if rec.IsZero() {
		return
	}
	f.addStamp(rec.Stamp())
	f.Add("owner", rec.Owner)
	f.Add("instance", rec.Instance)
}

// addWork adds details of a ledger's error.
func (f *Facts) addWork(err error) {
	var state *work.StateError
	if errors.As(err, &state) {
		f.Add("of", state.Of)
		f.Add("state", state.State)
	}
	var conflict *work.ConflictError
	if errors.As(err, &conflict) {
		f.Add("id", conflict.ID)
		f.Add("queue", conflict.Queue)
		f.Add("unique", conflict.Unique)
	}
	var limit *work.LimitError
	if errors.As(err, &limit) {
		f.Add("size", limit.Size)
		f.Add("most", limit.Most)
	}
}
