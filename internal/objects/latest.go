package objects

import (
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Latest returns the Latest of an entry, or a later time if one was seen. The
// record, or other times on the service's clock, may show that it is later than
// this response alone shows. So no client sets an earlier deadline than a
// client before it. Latest ignores times that are more than a minute ahead: the
// clock was wrong then, and has been set right.
func Latest(held cas.Entry, seen ...time.Time) time.Time {
	rec, latest, limit := held.Record, held.Latest, held.Latest.Add(time.Minute)
	seen = append(seen, rec.Acquired, rec.Renewed, rec.ProgressAt)
	if rec.State == tenure.Free {
		seen = append(seen, rec.Deadline) // the time of the release
	}
	for _, t := range seen {
		if t.After(latest) && t.Before(limit) {
			latest = t
		}
	}
	return latest
}
