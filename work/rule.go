package work

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Rule says how a queue hands out its items. A queue without a rule hands out
// all that is ready. Rules are about claims alone: items that run go on, and
// their owners write as before.
type Rule struct {
	Queue string `json:"queue"`
	// Paused says that claims find nothing in the queue.
	Paused bool `json:"paused"`

	// Actor and Note say who changed the rule last, and why. Changed is when,
	// on the ledger's clock.
	Actor   string    `json:"actor"`
	Note    string    `json:"note"`
	Changed time.Time `json:"changed"`
}

// Restricts reports whether the rule keeps a claim from anything.
func (r Rule) Restricts() bool { return r.Paused }

// The operations on a rule.
const (
	// Pause makes claims find nothing in the queue.
	Pause Verb = "pause"
	// Resume undoes Pause.
	Resume Verb = "resume"
)

// RuleVerbs lists the operations on rules.
var RuleVerbs = []Verb{Pause, Resume}

// RuleChange is an operator's change of a rule. Several copies have the effect
// of one.
type RuleChange struct {
	Verb  Verb
	Queue string
	// Actor and Note say who changes the rule, and why.
	Actor, Note string
}

// Check returns nil if the change is valid, or an error that matches
// fence.ErrInvalid.
func (c RuleChange) Check() error {
	if !slices.Contains(RuleVerbs, c.Verb) {
		return fmt.Errorf("%w verb %.40q: rules have %v", fence.ErrInvalid, c.Verb, RuleVerbs)
	}
	if err := checkQueue(c.Queue); err != nil {
		return err
	}
	if strings.TrimSpace(c.Actor) == "" || strings.TrimSpace(c.Note) == "" {
		return fmt.Errorf("%w %s: an operator's act needs an actor and a note that says why", fence.ErrInvalid, c.Verb)
	}
	if err := checkName("actor", c.Actor, tenure.MaxName); err != nil {
		return err
	}
	return checkName("note", c.Note, tenure.MaxText)
}

// Govern is the law of rules. It takes the rule that the ledger keeps (the zero
// Rule if none), a change and the ledger's time, and returns the rule to keep.
func Govern(r Rule, c RuleChange, now time.Time) (Rule, error) {
	if err := c.Check(); err != nil {
		return r, err
	}
	r.Queue = c.Queue
	switch c.Verb {
	case Pause:
		r.Paused = true
	case Resume:
		r.Paused = false
	}
	r.Actor, r.Note, r.Changed = c.Actor, c.Note, tenure.Time(now)
	return r, nil
}

// RuleQuery selects rules. The zero RuleQuery selects all.
type RuleQuery struct {
	Queue string // empty selects all queues
	Limit int    // the largest number to yield; 0 means all
}

// Check returns nil if the query is valid, or an error that matches
// fence.ErrInvalid.
func (q RuleQuery) Check() error {
	if err := checkSelected(q.Queue); err != nil {
		return err
	}
	return checkLimit(q.Limit)
}

// Selects reports whether the rule matches. It ignores Limit.
func (q RuleQuery) Selects(r Rule) bool { return q.Queue == "" || q.Queue == r.Queue }
