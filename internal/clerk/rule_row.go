package clerk

import (
	"time"

	"github.com/croft-dev/croft/work"
)

// Rule is the row of a rule.
type Rule struct {
	Queue     string `json:"queue"`
	Partition string `json:"partition"`
	Paused    bool   `json:"paused"`
	Running   int    `json:"running"`
	Starts    int    `json:"starts"`
	Span      int64  `json:"span"` // in which at most so many start
	Actor     string `json:"actor"`
	Note      string `json:"note"`
	Changed   int64  `json:"changed"`
}

// RuleRow converts a rule to its row.
func RuleRow(r work.Rule) Rule {
	return Rule{
		Queue: r.Queue, Partition: r.Partition, Paused: r.Paused, Running: r.Running, Starts: r.Starts,
		Span: int64(r.Interval / time.Microsecond), Actor: r.Actor, Note: r.Note, Changed: r.Changed.UnixMicro(),
	}
}

// Read converts the row to a rule.
func (row Rule) Read() work.Rule {
	return work.Rule{
		Queue: row.Queue, Partition: row.Partition, Paused: row.Paused,
		Limit: work.Limit{
			Running: row.Running, Starts: row.Starts, Interval: time.Duration(row.Span) * time.Microsecond,
		},
		Actor: row.Actor, Note: row.Note, Changed: Time(&row.Changed),
	}
}
