package objects

import (
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Latest is an entry's Latest, put off so that nobody sets an earlier deadline than somebody before: the record, or other times by the service's clock that were seen with it, may show that it
// is later than this response alone does. What is far ahead is left out, for a clock that was wrong and has been set right.
func Latest(held cas.Entry, seen ...time.Time) time.Time {
	rec, latest, limit := held.Record, held.Latest, held.Latest.Add(time.Minute)
	seen = append(seen, rec.Acquired, rec.Renewed, rec.ProgressAt)
	if rec.State == tenure.Free {
		seen = append(seen, rec.Deadline) // when it was freed
	}
	for _, t := range seen {
		if t.After(latest) && t.Before(limit) {
			latest = t
		}
	}
	return latest
}
