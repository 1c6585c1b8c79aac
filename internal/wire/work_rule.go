package wire

import (
	"time"

	"github.com/croft-dev/croft/work"
)

// rule is a rule as it is written, and a change of one.
type rule struct {
	Verb      work.Verb `json:"verb,omitempty"`
	Queue     string    `json:"queue"`
	Partition string    `json:"partition,omitempty"`
	Paused    bool      `json:"paused,omitempty"`
	Running   int       `json:"running,omitempty"`
	Starts    int       `json:"starts,omitempty"`
	Interval  string    `json:"interval,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	Note      string    `json:"note,omitempty"`
	Changed   time.Time `json:"changed,omitzero"`
}

// RuleChange writes a change of a rule.
func RuleChange(c work.RuleChange) []byte {
	return encode(rule{
		Verb: c.Verb, Queue: c.Queue, Partition: c.Partition, Running: c.Limit.Running, Starts: c.Limit.Starts,
		Interval: span(c.Limit.Interval), Actor: c.Actor, Note: c.Note,
	})
}

// ReadRuleChange reads the body of POST /v1/work/rules, strictly. It does not
// check the change itself.
func ReadRuleChange(body []byte) (c work.RuleChange, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "verb":
				err = text(r, &c.Verb)
			case "queue":
				err = text(r, &c.Queue)
			case "partition":
				err = text(r, &c.Partition)
			case "actor":
				err = text(r, &c.Actor)
			case "note":
				err = text(r, &c.Note)
			default:
				return r.limitMember(name, &c.Limit)
			}
			return true, err
		})
	})
	return c, err
}

// limitMember reads a member of a limit.
func (r *reader) limitMember(name string, l *work.Limit) (known bool, err error) {
	switch name {
	case "running":
		err = whole(r, &l.Running)
	case "starts":
		err = whole(r, &l.Starts)
	case "interval":
		err = r.duration(&l.Interval)
	default:
		return false, nil
	}
	return true, err
}

// Rule writes a rule.
func Rule(r work.Rule) []byte {
	return encode(rule{
		Queue: r.Queue, Partition: r.Partition, Paused: r.Paused, Running: r.Running, Starts: r.Starts,
		Interval: span(r.Interval), Actor: r.Actor, Note: r.Note, Changed: r.Changed,
	})
}

// ReadRule reads a rule. It skips members that it does not know.
func ReadRule(data []byte) (rule work.Rule, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) { return r.ruleMember(name, &rule) })
	})
	return rule, err
}

// ReadRuleLine reads a line of a listing of rules, as ReadItemLine does.
func ReadRuleLine(line []byte) (work.Rule, error) { return readLine(line, (*reader).ruleMember) }

// ruleMember reads a member of a rule.
func (r *reader) ruleMember(name string, rule *work.Rule) (known bool, err error) {
	switch name {
	case "queue":
		err = text(r, &rule.Queue)
	case "partition":
		err = text(r, &rule.Partition)
	case "paused":
		err = r.truth(&rule.Paused)
	case "actor":
		err = text(r, &rule.Actor)
	case "note":
		err = text(r, &rule.Note)
	case "changed":
		err = r.moment(&rule.Changed)
	default:
		return r.limitMember(name, &rule.Limit)
	}
	return true, err
}
