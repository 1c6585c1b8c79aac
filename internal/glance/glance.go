// Package glance has how Croft shows records to people: a state in one word,
// durations, text without control characters, and the most urgent of many. The
// command line and the server's page share it.
//
// The package has no goroutines and does no I/O.
package glance

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/croft-dev/croft/tenure"
)

// NowFor is the store's time for showing a record: now, or the newest time that
// the store has already written into the record. A clock of whole seconds lags
// behind those times, and none of them can lie ahead.
func NowFor(rec tenure.Record, now time.Time) time.Time {
	for _, past := range []time.Time{rec.Acquired, rec.Renewed, rec.ProgressAt, rec.Succeeded} {
		if past.After(now) {
			now = past
		}
	}
	if rec.Ended != "" && rec.Deadline.After(now) {
		now = rec.Deadline
	}
	return now
}

// StateOf is a record's state in one word. An expired key still has its last
// owner in the record, and is free for the next.
func StateOf(rec tenure.Record, now time.Time) string {
	switch {
	case rec.Alive(now):
		return "held"
	case rec.State == tenure.Held:
		return "expired"
	case rec.StateAt(now) == tenure.Reserved:
		return "reserved"
	case rec.State == tenure.Free && rec.Ended == tenure.EndReleased && now.Before(rec.HoldUntil):
		return "hold"
	case now.Before(rec.Due(rec.Every)):
		return "period"
	}
	return "free"
}

// PartLeft is the part of its TTL that a lease has left.
func PartLeft(rec tenure.Record, now time.Time) float64 {
	return rec.Deadline.Sub(now).Seconds() / max(rec.TTL, time.Microsecond).Seconds()
}

// Lapsing reports whether a lease has less than a third of its TTL left. One
// that Croft renews has more.
func Lapsing(rec tenure.Record, now time.Time) bool { return PartLeft(rec, now) < 1./3 }

// StallAfter is how long work may be without progress, unless a user says
// otherwise.
const StallAfter = 15 * time.Minute

// Stalled reports whether a held key's owner has reported progress, but not for
// a time.
func Stalled(rec tenure.Record, now time.Time, after time.Duration) bool {
	return rec.Progress != "" && now.Sub(rec.ProgressAt) >= after
}

// Causes explains how a term began.
var Causes = map[tenure.Cause]string{
	tenure.First:     "nothing is remembered before it",
	tenure.Released:  "the holder before it gave the key back",
	tenure.Expired:   "the holder before it was not heard from in time",
	tenure.Handoff:   "an operator had reserved the key for this owner",
	tenure.Operator:  "an operator took the key from its holder",
	tenure.Cancelled: "an operator revoked the term before it",
	tenure.Recovery:  "its holder asked for a token above one that the store did not know",
}

// Short is a duration for people, in at most two units.
func Short(d time.Duration) string {
	if d < 0 {
		return "-" + Short(-d)
	}
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, m time.Duration, lesser string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, m, lesser)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return two(d/day, "d", d%day/time.Hour, "h")
}

// Lines returns a message with its line breaks. A tab becomes a space. It
// escapes other unprintable characters.
func Lines(s string) string {
	if !strings.ContainsFunc(s, Unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString("\n")
		case r == '\t':
			b.WriteString(" ")
		case Unprintable(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Unprintable reports whether a character could change how the text around it
// is shown.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
