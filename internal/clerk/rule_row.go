package clerk

import "github.com/croft-dev/croft/work"

// Rule is the row of a rule.
type Rule struct {
	Queue   string `json:"queue"`
	Paused  bool   `json:"paused"`
	Actor   string `json:"actor"`
	Note    string `json:"note"`
	Changed int64  `json:"changed"`
}

// RuleRow converts a rule to its row.
func RuleRow(r work.Rule) Rule {
	return Rule{Queue: r.Queue, Paused: r.Paused, Actor: r.Actor, Note: r.Note, Changed: r.Changed.UnixMicro()}
}

// Read converts the row to a rule.
func (row Rule) Read() work.Rule {
	return work.Rule{
		Queue: row.Queue, Paused: row.Paused, Actor: row.Actor, Note: row.Note, Changed: Time(&row.Changed),
	}
}
