package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// register is the state of a key as the answers let it be known.
type register struct {
	token fence.Token // 0: nothing was granted yet
	grant fence.Grant
	held  bool
	// reserved says for whom the key is held, if nobody has it and an operator keeps it for that owner.
	reserved string
	// deadline is the latest that a confirmed answer told, on the store's clock. A renewal that nobody heard of may have moved the true one further.
	deadline int64
	// hidden says that a grant whose token no answer ever showed has the key.
	hidden bool
	// forgot says that the store has lost its memory, and may show any state that it was in before.
	forgot bool
}

// step is one thing that happened to a register.
type step struct {
	what what
	op   Op     // that did it, or that shows that it was done
	of   *grant // that it is about
	// loose says that a renewal of unknown outcome may have moved the deadline by the end of the step.
	loose bool
	// again says that another release of the same grant may have done it already.
	again bool
	timed bool
}

type what string

const (
	granted   what = "granted"   // at some time between the first asking and the first answer that shows it
	perhaps   what = "perhaps"   // granted, or not, at any time after the asking
	confirmed what = "confirmed" // an acquire was answered, or an operator: the grant is the newest
	held      what = "held"      // an acquire was refused: another has it
	renewed   what = "renewed"
	reported  what = "reported"
	freed     what = "freed"    // a release was confirmed
	letGo     what = "let go"   // released, or not
	denied    what = "denied"   // the grant was told that it is over
	rewound   what = "rewound"  // the store forgot
	puzzling  what = "puzzling" // an answer that no request of its kind can get
)

// after returns every state that the register may be in after the step; none if the step cannot have happened.
func (r register) after(s step) []any {
	token, id := s.op.Shown()
	mine := !r.hidden && r.grant == s.of.id && (r.held || s.of.verb == tenure.Revoke)
	switch s.what {
	case rewound:
		return []any{register{token: r.token, forgot: true}}
	case granted:
		early := s.timed && r.held && s.of.acquired < r.deadline
		allowed := s.of.verb.ByHand() || (r.reserved != "" && r.reserved == s.of.owner)
		if s.of.token <= r.token || (early && !allowed) {
			return nil
		}
		return []any{s.of.begin()}
	case perhaps:
		if s.of.token == 0 {
			next := s.of.begin()
			next.token, next.hidden = r.token, true
			return []any{r, next}
		}
		return []any{r}
	case letGo:
		if mine {
			return []any{r, r.free()}
		}
		if r.forgot {
			return []any{r, register{token: s.of.token, grant: s.of.id}}
		}
		return []any{r}
	case puzzling:
		return nil
	}
	if r.forgot { // the first answer that shows the record tells what is left
		if s.what == denied && id != s.of.id {
			return []any{r}
		}
		if token > r.token {
			return nil
		}
		next := register{token: token, grant: id, held: s.op.State != tenure.Free, deadline: s.op.Deadline}
		if s.op.State == tenure.Reserved {
			next.reserved = s.op.Result.Owner
		}
		if s.what == freed {
			return []any{r, next} // it may have been released long ago, and another have the key by now
		}
		return []any{next}
	}
	switch s.what {
	case confirmed, renewed, reported:
		late := s.timed && !s.loose && s.earliest() >= r.deadline && !s.op.Resume && s.what != confirmed
		if !mine || token != r.token || id != r.grant || late {
			return nil
		}
		if s.what != reported && r.held {
			r.deadline = max(r.deadline, s.op.Deadline)
		}
		return []any{r}
	case held:
		if r.hidden || !r.held || token != r.token || id != r.grant || s.op.Deadline < r.deadline {
			return nil
		}
		r.deadline = s.op.Deadline
		return []any{r}
	case freed:
		if mine {
			return []any{r.free()}
		}
		if s.again || (r.grant == s.of.id && !r.held) {
			return []any{r}
		}
		return nil
	case denied:
		// is answered as done for as long as nothing came after it
		lasts := s.of.verb == tenure.Reserve || s.of.verb == tenure.Revoke
		if mine && (lasts || (s.timed && s.op.Now < r.deadline)) {
			return nil
		}
		if !r.hidden && (token != r.token || id != r.grant) {
			return nil
		}
		return []any{r}
	}
	return nil
}

// earliest is the store's time when the operation began, or before that. A store may send a request twice by itself, and the first copy, which nobody heard of, have moved the deadline that the second
// was judged by.
func (s step) earliest() int64 { return s.op.Now - (s.op.End-s.op.Begin)/1000 }

// begin is the register after a grant.
func (g *grant) begin() register {
	r := register{token: g.token, grant: g.id}
	if g.verb != tenure.Revoke {
		r.held, r.deadline = true, g.acquired
	}
	if g.verb == tenure.Reserve {
		r.reserved = g.owner
	}
	return r
}

// free is the register after its holder has given the key back.
func (r register) free() register {
	r.held, r.reserved, r.deadline = false, "", 0
	return r
}

var model = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{register{}} },
	Step:  func(state, input, _ any) []any { return state.(register).after(input.(step)) },
	Equal: func(a, b any) bool { return a.(register) == b.(register) },
}

// checkRegister searches for an order of the requests on a key, each between its sending and its answer, that explains every answer. Requests of unknown outcome
// fork the state.
func checkRegister(key string, ops []Op, t Terms) []Violation {
	list, _ := grants(ops) // what is wrong with them checkTokens tells
	var steps []porcupine.Operation
	processes := map[string]int{}
	last := int64(0)
	for _, s := range stepsOf(ops, list, !t.Untimed) {
		id, known := processes[s.op.Process]
		if !known {
			id = len(processes)
			processes[s.op.Process] = id
		}
		begin, end := s.op.Begin, s.op.End
		switch s.what {
		case granted:
			begin, end = s.of.asked, s.of.shown
		case perhaps:
			begin, end = s.of.asked, Never
		case letGo:
			end = overtaken(list, s.of, begin)
		}
		if end != Never {
			last = max(last, end)
		}
		steps = append(steps, porcupine.Operation{ClientId: id, Input: s, Call: begin, Return: end})
	}
	for i := range steps {
		steps[i].Return = min(steps[i].Return, max(last, steps[i].Call)+1)
	}
	switch porcupine.CheckOperationsTimeout(model.ToModel(), steps, t.Patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Violation{{
			Law: Register, Key: key,
			Text: fmt.Sprintf(
				"no order of the %d steps was found within %s, and none was shown not to exist; that counts as broken",
				len(steps), t.Patience.Round(time.Second),
			),
		}}
	}
	// how far it came takes longer to tell
	_, info := porcupine.CheckOperationsVerbose(model.ToModel(), steps, t.Patience)
	return []Violation{unexplained(key, steps, info)}
}

// unexplained tells how far an explanation came, and what it could not explain.
func unexplained(key string, steps []porcupine.Operation, info porcupine.LinearizationInfo) Violation {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	done := map[int]bool{}
	for _, i := range longest {
		done[i] = true
	}
	// What cannot be placed is what ends first among the rest: everything else could still come later.
	stuck := -1
	for i := range steps {
		if !done[i] && (stuck < 0 || steps[i].Return < steps[stuck].Return) {
			stuck = i
		}
	}
	v := Violation{
		Law: Register, Key: key,
		Text: fmt.Sprintf(
			"no order of the requests explains all answers: %d of %d steps can be explained",
			len(longest), len(steps),
		),
	}
	for _, i := range longest[max(0, len(longest)-5):] {
		v.Ops = append(v.Ops, steps[i].Input.(step).op)
	}
	if stuck >= 0 {
		s := steps[stuck].Input.(step)
		v.Text += fmt.Sprintf("; then not that %s is %s (the last of these)", short(s.of.id), s.what)
		v.Ops = append(v.Ops, s.op)
	}
	return v
}

// overtaken is when a release of unknown outcome no longer matters: a later grant was seen.
func overtaken(list []*grant, of *grant, begin int64) int64 {
	at := int64(Never)
	for _, g := range list {
		if g.token > of.token && g.shown > begin {
			at = min(at, g.shown)
		}
	}
	return at
}

// stepsOf turns the operations on a key into steps of its register.
func stepsOf(ops []Op, list []*grant, timed bool) []step {
	by := map[fence.Grant]*grant{}
	var steps []step
	for _, g := range list {
		by[g.id] = g
		s := step{what: granted, op: g.witness, of: g, timed: timed}
		if g.token == 0 {
			s.what, s.op = perhaps, g.first
		}
		steps = append(steps, s)
	}
	letting := map[fence.Grant]bool{}
	for _, op := range ops {
		if op.Kind == Rewind {
			steps = append(steps, step{what: rewound, op: op, of: &grant{}})
			continue
		}
		if op.Kind != Lease || op.Outcome == Invalid {
			continue
		}
		_, id := op.Asked()
		s := step{op: op, of: by[id], timed: timed}
		if s.of == nil { // renewed or released without having been asked for here
			s.of = newGrant(id)
		}
		s.loose = s.of.unsure < op.End
		before := 0
		for _, begin := range s.of.releases {
			if begin < op.End {
				before++
			}
		}
		s.again = before > 1
		if op.Open() {
			if op.Verb == tenure.Release && !letting[id] {
				letting[id] = true
				s.what = letGo
				steps = append(steps, s)
			}
			continue // what asks for a grant has its step already, and a renewal nobody heard of binds nobody
		}
		s.what = puzzling
		switch {
		case op.Outcome == NotOwned:
			s.what = denied
		case (op.Verb == tenure.Acquire || op.Verb.ByHand()) && op.Outcome == OK:
			s.what = confirmed
		case op.Verb == tenure.Acquire && op.Outcome == Held:
			s.what = held
		case op.Verb == tenure.Renew && op.Outcome == OK:
			s.what = renewed
		case op.Verb == tenure.Report && op.Outcome == OK:
			s.what = reported
		case op.Verb == tenure.Release && op.Outcome == OK:
			s.what = freed
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.op.Begin, b.op.Begin) })
	return steps
}
