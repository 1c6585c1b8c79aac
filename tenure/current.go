package tenure

import (
	"time"

	"github.com/croft-dev/croft/fence"
)

// Current returns nil if the stamp's grant holds the key at now. Otherwise it
// returns a [*NotOwnedError] with the reason and the key's record. It also
// decides without the record's history, but then the reason may be less exact.
func (r Record) Current(s fence.Stamp, now time.Time) error {
	refusal := &NotOwnedError{Grant: s.Grant, Record: r, Why: WhyUnknown, Now: now}
	if r.Key != s.Key {
		refusal.Record = Record{}
		return refusal
	}
	if r.Token == s.Token && r.Grant == s.Grant {
		if r.Alive(now) {
			return nil
		}
		refusal.Why = whyOver(r.Ended, r.State)
		return refusal
	}
	switch term, known := r.term(s.Grant); {
	case known && term.Token == s.Token:
		refusal.Why = whyOver(term.Ended, term.State)
	case !known && s.Token < r.Token: // the record may have forgotten its term
		refusal.Why = WhySuperseded
	}
	return refusal
}

// Issued reports whether the record remembers the stamp's grant and token, so
// that the stamp was not made up.
func (r Record) Issued(s fence.Stamp) bool {
	if r.IsZero() || r.Key != s.Key {
		return false
	}
	term, known := r.term(s.Grant)
	return known && term.Token == s.Token || r.Grant == s.Grant && r.Token == s.Token
}
