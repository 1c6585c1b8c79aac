package wire

import "github.com/croft-dev/croft/work"

// RuleChange writes a change of a rule.
func RuleChange(c work.RuleChange) []byte {
	return encode(struct {
		Verb  work.Verb `json:"verb"`
		Queue string    `json:"queue"`
		Actor string    `json:"actor,omitempty"`
		Note  string    `json:"note,omitempty"`
	}{c.Verb, c.Queue, c.Actor, c.Note})
}

// ReadRuleChange reads the body of POST /v1/work/rules, strictly. It does not
// check the change itself.
func ReadRuleChange(body []byte) (c work.RuleChange, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			switch name {
			case "verb":
				return true, text(r, &c.Verb)
			case "queue":
				return true, text(r, &c.Queue)
			case "actor":
				return true, text(r, &c.Actor)
			case "note":
				return true, text(r, &c.Note)
			}
			return false, nil
		})
	})
	return c, err
}

// Rule writes a rule.
func Rule(r work.Rule) []byte { return encode(r) }

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
	case "paused":
		err = r.truth(&rule.Paused)
	case "actor":
		err = text(r, &rule.Actor)
	case "note":
		err = text(r, &rule.Note)
	case "changed":
		err = r.moment(&rule.Changed)
	default:
		return false, nil
	}
	return true, err
}
