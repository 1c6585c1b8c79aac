package work

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// EachPartition stands for every partition of a queue, in a rule. It is no
// partition's name.
const EachPartition = "*"

// Rule says how a queue, or a partition of it, hands out its items. A queue
// without rules hands out all that is ready. Rules are about claims alone:
// items that run go on, and their owners write as before. An operator's
// Takeover is no claim, but the item that it starts counts among those that
// run.
type Rule struct {
	Queue string
	// Partition is the partition that the rule is about. It is empty for the
	// queue as a whole. EachPartition is about every partition that has no rule
	// of its own that restricts it.
	Partition string
	// Paused says that claims find nothing there.
	Paused bool
	Limit

	// Actor and Note say who changed the rule last, and why. Changed is when,
	// on the ledger's clock.
	Actor, Note string
	Changed     time.Time
}

// Restricts reports whether the rule keeps a claim from anything.
func (r Rule) Restricts() bool { return r.Paused || !r.Limit.IsZero() }

// Limit bounds what claims may take. The zero Limit bounds nothing.
type Limit struct {
	// Running is the largest number of items that run at the same time. 0 is no
	// bound. Lapsed items run until they are requeued.
	Running int
	// Starts is the largest number of items that claims take in any period of
	// the length Interval. 0 is no bound.
	//
	// A ledger counts starts by hundredths of the Interval, and each at the end
	// of its hundredth. So it is exact about the bound, and a start may come up
	// to a hundredth later than it could.
	Starts   int
	Interval time.Duration
}

// IsZero reports whether the limit bounds nothing.
func (l Limit) IsZero() bool { return l.Running == 0 && l.Starts == 0 }

// The bounds of limits.
const (
	MaxRunning  = 1 << 30
	MinInterval = 100 * time.Millisecond
)

func (l Limit) check() error {
	switch {
	case l.Running < 0 || l.Running > MaxRunning:
		return fmt.Errorf("%w limit of %d running items: it must be between 0 and %d, and 0 is no limit",
			fence.ErrInvalid, l.Running, MaxRunning)
	case l.Starts < 0 || l.Starts > MaxRunning:
		return fmt.Errorf("%w limit of %d starts: it must be between 0 and %d, and 0 is no limit",
			fence.ErrInvalid, l.Starts, MaxRunning)
	case l.Starts == 0 && l.Interval != 0:
		return fmt.Errorf("%w limit: an interval needs a number of starts", fence.ErrInvalid)
	case l.Starts > 0 && (l.Interval < MinInterval || l.Interval > MaxDelay):
		return fmt.Errorf("%w interval %s of %d starts: it must be between %s and %s",
			fence.ErrInvalid, l.Interval, l.Starts, MinInterval, MaxDelay)
	}
	return nil
}

// Slot returns the time at which a start at now is counted: the end of its
// hundredth of the Interval.
func (l Limit) Slot(now time.Time) time.Time {
	width := whole(l.Interval / 100)
	return now.Truncate(width).Add(width)
}

// The operations on a rule.
const (
	// Pause makes claims find nothing.
	Pause Verb = "pause"
	// Resume undoes Pause.
	Resume Verb = "resume"
	// SetLimit sets the limit. The zero Limit lifts it.
	SetLimit Verb = "limit"
)

// RuleVerbs lists the operations on rules.
var RuleVerbs = []Verb{Pause, Resume, SetLimit}

// RuleChange is an operator's change of a rule. Several copies have the effect
// of one.
type RuleChange struct {
	Verb Verb
	// Queue and Partition name the rule, as in [Rule].
	Queue, Partition string
	// Limit is what SetLimit sets.
	Limit Limit
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
	switch {
	case c.Partition != EachPartition:
		if err := checkPartition(c.Partition); err != nil {
			return err
		}
	case c.Verb != SetLimit:
		return fmt.Errorf("%w %s of each partition: %s the queue itself", fence.ErrInvalid, c.Verb, c.Verb)
	}
	if c.Verb != SetLimit && c.Limit != (Limit{}) {
		return fmt.Errorf("%w %s: it takes no limit", fence.ErrInvalid, c.Verb)
	}
	if err := c.Limit.check(); err != nil {
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

// checkPartition returns why a partition cannot have this name, or nil. The
// empty name is none.
func checkPartition(name string) error {
	if name == EachPartition {
		return fmt.Errorf("%w partition %q: the name stands for every partition, in a rule", fence.ErrInvalid, name)
	}
	return checkName("partition", name, MaxPartition)
}

// Govern is the law of rules. It takes the rule that the ledger keeps (the zero
// Rule if none), a change and the ledger's time, and returns the rule to keep.
func Govern(r Rule, c RuleChange, now time.Time) (Rule, error) {
	if err := c.Check(); err != nil {
		return r, err
	}
	r.Queue, r.Partition = c.Queue, c.Partition
	switch c.Verb {
	case Pause:
		r.Paused = true
	case Resume:
		r.Paused = false
	default:
		r.Limit = c.Limit
		r.Interval = whole(r.Interval)
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
