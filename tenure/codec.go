package tenure

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
)

// plain is a Record without its methods. written wraps it, so that durations
// are written as Go prints them.
type plain Record

type written struct {
	plain
	TTL        string `json:"ttl"`
	Every      string `json:"every,omitempty"`
	Checkpoint []byte `json:"checkpoint,omitempty"` // may be no valid text
}

// MarshalJSON writes the record as stores keep it: field names from the tags,
// times as RFC 3339, durations as Go prints them, the checkpoint in base64.
func (r Record) MarshalJSON() ([]byte, error) {
	w := written{plain: plain(r), TTL: r.TTL.String(), Checkpoint: []byte(r.Checkpoint)}
	if r.Every != 0 {
		w.Every = r.Every.String()
	}
	return json.Marshal(w)
}

// mostValues limits the values in a record's JSON. The longest record that the
// law makes has fewer than 500.
const mostValues = 1024

// commas counts the commas outside strings.
func commas(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\\':
			i++ // an escaped quote ends nothing
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n
}

// UnmarshalJSON reads what MarshalJSON wrote. Others may have written the data,
// and a term of 3 bytes takes 184 bytes in memory. So UnmarshalJSON refuses
// data with too many values before it allocates room for them. It does not
// check the record itself: call [Record.Check].
func (r *Record) UnmarshalJSON(data []byte) error {
	if n := commas(data); n >= mostValues {
		return fmt.Errorf("%d values, at most %d are allowed", n+1, mostValues)
	}
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	read := Record(w.plain)
	read.Checkpoint = string(w.Checkpoint)
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

// Check returns nil if the law can have made this record, and otherwise an
// error that matches [fence.ErrInvalid]. Stores call it on every record they
// read, so that damage is reported where it is found and no decision rests on
// it.
func (r Record) Check() error {
	if err := fence.CheckKey(r.Key); err != nil {
		return err
	}
	if err := r.Stamp().Check(); err != nil {
		return err
	}
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w record: "+format, append([]any{fence.ErrInvalid}, args...)...)
	}
	over := r.Ended != ""
	switch {
	case r.State != Free && r.State != Held && r.State != Reserved:
		return damaged("state %.80q", r.State)
	case r.Acquired.IsZero() || r.Renewed.IsZero() || r.Deadline.IsZero():
		return damaged("a time is missing")
	case r.State != Free && (r.TTL < MinTTL || r.TTL > MaxTTL):
		return damaged("TTL %s", r.TTL)
	case !validPeriod(r.Every):
		return damaged("period %s", r.Every)
	case !possible(r.Succeeded) || !possible(r.Grid):
		return damaged("success at %s, on the grid of %s", r.Succeeded, r.Grid)
	case over && r.Ended != EndReleased && r.Ended != EndFailed,
		over && r.State != Free,
		!over && r.State == Free && r.Cause != Cancelled:
		return damaged("it is %s and ended %.80q", r.State, r.Ended)
	case len(r.Guards) > MaxGuards || slices.ContainsFunc(r.Guards, func(g string) bool { return len(g) > MaxText }):
		return damaged("%d guards, or one that is too long", len(r.Guards))
	case len(r.Progress) > MaxText:
		return damaged("a progress marker of %d bytes", len(r.Progress))
	case len(r.Checkpoint) > MaxCheckpoint:
		return damaged("a checkpoint of %d bytes", len(r.Checkpoint))
	case len(r.History) == 0 || len(r.History) > HistoryLen:
		return damaged("%d transfers in its history", len(r.History))
	}
	last := r.History[len(r.History)-1]
	if tooLong(r.Owner, r.Instance, r.Actor, r.Note) {
		return damaged("a name or a note is longer than any request may have")
	}
	if last.Token != r.Token || last.Grant != r.Grant || last.Cause != r.Cause || last.Ended != r.Ended {
		return damaged("its history does not end with its own grant")
	}
	token := fence.Token(0)
	for i, term := range r.History {
		switch {
		case term.Token <= token:
			return damaged("token %d comes after %d in its history", term.Token, token)
		case !slices.Contains(causes, term.Cause):
			return damaged("token %d has the cause %.80q", term.Token, term.Cause)
		case !slices.Contains(ends, term.Ended) || term.Ended == "" && i < len(r.History)-1:
			return damaged("token %d ended %.80q in its history", term.Token, term.Ended)
		case tooLong(term.Owner, term.Instance, term.Actor, term.Note),
			len(term.Grant) > MaxName,
			len(term.State) > MaxName:
			return damaged("token %d has a name or a note that is longer than any request may have", term.Token)
		}
		token = term.Token
	}
	return nil
}

// possible reports whether t is a time at which a term can have begun, or none.
func possible(t time.Time) bool { return t.IsZero() || checkClock(t) == nil }

// tooLong reports whether a text is longer than a request may have it.
func tooLong(owner, instance, actor, note string) bool {
	return len(owner) > MaxName || len(instance) > MaxName || len(actor) > MaxName || len(note) > MaxText
}

var (
	causes = []Cause{First, Released, Expired, Handoff, Operator, Cancelled, Recovery}
	ends   = []End{"", EndReleased, EndFailed, EndExpired, EndTakenOver, EndSuperseded}
)
