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

// register is the state of one key, as far as the answers reveal it.
type register struct {
	token fence.Token // 0 before the first grant
	grant fence.Grant
	held  bool
	// reserved is the owner that an operator reserved the key for. It is "" if
	// the key is not reserved.
	reserved string
	// deadline is the latest one in a confirmed answer, on the store's clock.
	// The true deadline may be later, after a renewal of unknown outcome.
	deadline int64
	// hidden says that the key's holder is a grant whose token no answer shows.
	hidden bool
	// forgot says that the store lost its memory. It may show any earlier
	// state.
	forgot bool
}

// step is one event in the life of a register.
type step struct {
	kind stepKind
	op   Op     // the operation that caused it, or that shows it
	of   *grant // the grant that it concerns
	// loose says that a renewal of unknown outcome may have moved the deadline
	// before the step ended.
	loose bool
	// again says that an earlier release of the same grant may have had the
	// effect already.
	again bool
	timed bool
}

type stepKind string

const (
	granted   stepKind = "granted"   // between the first request and the first answer that shows it
	perhaps   stepKind = "perhaps"   // granted or not, at any time after the request
	confirmed stepKind = "confirmed" // an acquire or an operator's act succeeded: this grant is the newest
	held      stepKind = "held"      // an acquire was refused: another grant has the key
	renewed   stepKind = "renewed"
	reported  stepKind = "reported"
	freed     stepKind = "freed"    // a release was confirmed
	letGo     stepKind = "let go"   // a release of unknown outcome
	denied    stepKind = "denied"   // the store said that the grant is over
	rewound   stepKind = "rewound"  // the store lost its memory
	puzzling  stepKind = "puzzling" // an answer that no request of its kind can get
)

// after returns every state that may follow the step. It returns none if the
// step cannot happen in state r.
func (r register) after(s step) []any {
	token, id := s.op.Shown()
	mine := !r.hidden && r.grant == s.of.id && (r.held || s.of.verb == tenure.Revoke)
	switch s.kind {
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
	if r.forgot { // the next answer that shows the record reveals what is left
		if s.kind == denied && id != s.of.id {
			return []any{r}
		}
		if token > r.token {
			return nil
		}
		next := register{token: token, grant: id, held: s.op.State != tenure.Free, deadline: s.op.Deadline}
		if s.op.State == tenure.Reserved {
			next.reserved = s.op.Result.Owner
		}
		if s.kind == freed {
			// The release may be old, and another grant may have the key by
			// now.
			return []any{r, next}
		}
		return []any{next}
	}
	switch s.kind {
	case confirmed, renewed, reported:
		late := s.timed && !s.loose && s.earliest() >= r.deadline && !s.op.Resume && s.kind != confirmed
		if !mine || token != r.token || id != r.grant || late {
			return nil
		}
		if s.kind != reported && r.held {
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
		// The store confirms these two again until a newer act follows.
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

// earliest is a lower bound of the store's time when the operation began. It is
// used instead of the time in the answer, because a store may send a request
// twice by itself. The unheard first copy may have moved the deadline before
// the second copy was decided.
func (s step) earliest() int64 { return s.op.Now - (s.op.End-s.op.Begin)/1000 }

// begin returns the register as it is just after the grant.
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

// free returns the register as it is after the holder released the key.
func (r register) free() register {
	r.held, r.reserved, r.deadline = false, "", 0
	return r
}

var model = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{register{}} },
	Step:  func(state, input, _ any) []any { return state.(register).after(input.(step)) },
	Equal: func(a, b any) bool { return a.(register) == b.(register) },
}

// checkRegister searches for an order of the requests on a key that explains
// every answer. Each request takes effect between its sending and its answer. A
// request of unknown outcome forks the state.
func checkRegister(key string, ops []Op, in Scope) []Violation {
	list, _ := grants(ops) // checkTokens reports the violations
	var steps []porcupine.Operation
	processes := map[string]int{}
	last := int64(0)
	for _, s := range stepsOf(ops, list, !in.Untimed) {
		id, known := processes[s.op.Process]
		if !known {
			id = len(processes)
			processes[s.op.Process] = id
		}
		begin, end := s.op.Begin, s.op.End
		switch s.kind {
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
	switch porcupine.CheckOperationsTimeout(model.ToModel(), steps, in.Patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Violation{{
			Law: Register, Key: key,
			Text: fmt.Sprintf(
				"no order of the %d steps was found within %s, and none was shown not to exist; that counts as broken",
				len(steps), in.Patience.Round(time.Second),
			),
		}}
	}
	// Only a failed check needs the details: they take longer to compute.
	_, info := porcupine.CheckOperationsVerbose(model.ToModel(), steps, in.Patience)
	return []Violation{unexplained(key, steps, info)}
}

// unexplained describes a failed search: the longest explained order, and the
// step that does not fit after it.
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
	// Among the rest, the step that ends first does not fit. All others could
	// still come later.
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
		v.Text += fmt.Sprintf("; then not that %s is %s (the last of these)", short(s.of.id), s.kind)
		v.Ops = append(v.Ops, s.op)
	}
	return v
}

// overtaken returns when a release of unknown outcome no longer matters: the
// first time at which a later grant was shown.
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
		s := step{kind: granted, op: g.witness, of: g, timed: timed}
		if g.token == 0 {
			s.kind, s.op = perhaps, g.first
		}
		steps = append(steps, s)
	}
	letting := map[fence.Grant]bool{}
	for _, op := range ops {
		if op.Kind == Rewind {
			steps = append(steps, step{kind: rewound, op: op, of: &grant{}})
			continue
		}
		if op.Kind != Lease || op.Outcome == Invalid {
			continue
		}
		_, id := op.Asked()
		s := step{op: op, of: by[id], timed: timed}
		if s.of == nil { // no process of this history asked for the grant
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
				s.kind = letGo
				steps = append(steps, s)
			}
			// A request for a grant has its step already. A renewal of unknown
			// outcome forbids no state, so it needs none.
			continue
		}
		s.kind = puzzling
		switch {
		case op.Outcome == NotOwned:
			s.kind = denied
		case (op.Verb == tenure.Acquire || op.Verb.ByHand()) && op.Outcome == OK:
			s.kind = confirmed
		case op.Verb == tenure.Acquire && op.Outcome == Held:
			s.kind = held
		case op.Verb == tenure.Renew && op.Outcome == OK:
			s.kind = renewed
		case op.Verb == tenure.Report && op.Outcome == OK:
			s.kind = reported
		case op.Verb == tenure.Release && op.Outcome == OK:
			s.kind = freed
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.op.Begin, b.op.Begin) })
	return steps
}
