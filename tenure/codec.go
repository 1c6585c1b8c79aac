package tenure

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// plain has Record's fields without its methods; written wraps it so that durations read as Go prints them.
type plain Record

type written struct {
	plain
	TTL   string `json:"ttl"`
	Every string `json:"every,omitempty"`
}

// MarshalJSON writes the record as stores keep it: names as in the field tags, times as RFC 3339, durations as Go prints them.
func (r Record) MarshalJSON() ([]byte, error) {
	w := written{plain: plain(r), TTL: r.TTL.String()}
	if r.Every != 0 {
		w.Every = r.Every.String()
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(data []byte) error {
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	read := Record(w.plain)
	var err error
	if read.TTL, err = time.ParseDuration(w.TTL); err != nil {
		return fmt.Errorf("ttl: %w", err)
	}
	if w.Every != "" {
		if read.Every, err = time.ParseDuration(w.Every); err != nil {
			return fmt.Errorf("every: %w", err)
		}
	}
	*r = read
	return nil
}

// Check reports what makes a record read from a store impossible, or nil. Stores call it on what they read, so that damage is named where it is
// found and never becomes a decision.
func (r Record) Check() error {
	if err := fence.CheckKey(r.Key); err != nil {
		return err
	}
	if err := r.Stamp().Check(); err != nil {
		return err
	}
	switch {
	case r.State != Free && r.State != Held && r.State != Reserved:
		return fmt.Errorf("%w state %q", fence.ErrInvalid, r.State)
	case r.Cause == "":
		return fmt.Errorf("%w record: it has no cause", fence.ErrInvalid)
	case r.Acquired.IsZero() || r.Deadline.IsZero():
		return fmt.Errorf("%w record: a time is missing", fence.ErrInvalid)
	case len(r.History) == 0 || len(r.History) > HistoryLen:
		return fmt.Errorf("%w record: %d transfers in its history", fence.ErrInvalid, len(r.History))
	case r.History[len(r.History)-1].Grant != r.Grant:
		return fmt.Errorf("%w record: its history does not end with its own grant", fence.ErrInvalid)
	}
	return nil
}
