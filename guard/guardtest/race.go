package guardtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// The size of one race: the number of writing goroutines, and of their handles.
const (
	racers  = 12
	handles = 4
)

// calls returns how many calls all racers make together.
func (h Harness) calls() int { return racers * int(h.many(20, 7)) }

func risingRace(t testing.TB, h Harness) {
	race(t, h, func(i, _ int) int { return i/3 + 1 })
}

func fallingRace(t testing.TB, h Harness) {
	race(t, h, func(i, n int) int { return (n-i)/3 + 1 })
}

func shuffledRace(t testing.TB, h Harness) {
	for round := range h.many(3, 1) {
		order := rand.New(rand.NewPCG(round, 3)).Perm(h.calls())
		race(t, h, func(i, _ int) int { return order[i]/3 + 1 })
	}
}

// race lets many owners write and raise at once, while others read. token gives
// the token of the i-th of n calls. Then race judges the history.
func race(t testing.TB, h Harness, token func(i, n int) int) {
	t.Helper()
	r := &arena{probe: newProbe(t, h), whole: h, refused: map[int]bool{}}
	var next atomic.Int64
	all := h.calls()
	r.run(func(on Handle) bool {
		i := int(next.Add(1)) - 1
		if i >= all {
			return false
		}
		n := token(i, all)
		s := stamp(fence.Token(n), n, 0)
		if i%5 == 4 {
			r.raise(on, s)
		} else {
			r.write(on, s, i, s.Token)
		}
		return true
	})
	r.judge()
}

// numberedRace is a race between the numbered writes of one owner. The number
// takes the place of the token.
func numberedRace(t testing.TB, h Harness) {
	r := &arena{probe: newProbe(t, h), whole: h, refused: map[int]bool{}, bySeq: true}
	order := rand.New(rand.NewPCG(1, 2)).Perm(h.calls())
	var next atomic.Int64
	r.run(func(on Handle) bool {
		i := int(next.Add(1)) - 1
		if i >= len(order) {
			return false
		}
		seq := order[i] + 1
		r.write(on, stamp(7, 1, uint64(seq)), i, fence.Token(seq))
		return true
	})
	r.judge()
}

// arena is one resource with many writers and readers, and the history of their
// calls.
type arena struct {
	*probe
	whole Harness
	bySeq bool
	clock atomic.Int64

	mu      sync.Mutex // guards the fields below
	history []Event
	refused map[int]bool // by the number of the call
	highest fence.Token  // of all calls, also refused ones
	err     error        // the first error that is no refusal
}

// run calls step on all handles until it returns false. Readers look on
// meanwhile.
func (r *arena) run(step func(on Handle) bool) {
	r.t.Helper()
	on := []Handle{r.Handle}
	for len(on) < handles {
		on = append(on, r.another().Handle)
	}
	var writers, readers sync.WaitGroup
	over := make(chan struct{})
	for i := range racers {
		writers.Go(func() {
			for step(on[i%handles]) {
			}
		})
	}
	for i := range 2 {
		readers.Go(func() {
			for {
				r.look(on[i])
				runtime.Gosched() // a single processor would make the writers wait for each time slice
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(over)
	readers.Wait()
}

func (r *arena) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, e)
}

func (r *arena) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *arena) write(on Handle, s fence.Stamp, id int, rank fence.Token) {
	body := payload(rank, id)
	r.settle(s, id, rank, Write, func() error { return on.Write(r.ctx, s, body) })
}

func (r *arena) raise(on Handle, s fence.Stamp) {
	r.settle(s, -1, s.Token, Raise, func() error { _, err := on.Raise(r.ctx, s); return err })
}

// settle makes a call and records its outcome.
func (r *arena) settle(s fence.Stamp, id int, rank fence.Token, kind Kind, call func() error) {
	e := Event{Kind: kind, Token: rank, Who: fmt.Sprintf("call %d", id), Begin: r.clock.Add(1)}
	err := call()
	e.End = r.clock.Add(1)
	r.mu.Lock()
	r.highest = max(r.highest, rank)
	r.refused[id] = err != nil
	r.mu.Unlock()

	var stale *fence.StaleError
	var refused *fence.RefusedError
	switch {
	case err == nil:
		r.add(e)
	case !r.bySeq && errors.As(err, &stale):
		if stale.Presented != s || stale.Newest.Token <= s.Token {
			r.fail(fmt.Errorf("refused %s as stale, presented %+v, newest %+v: these are not its facts",
				s, stale.Presented, stale.Newest))
		}
	case r.bySeq && errors.Is(err, fence.ErrRepeated) && errors.As(err, &refused):
		if refused.Presented != s || refused.Mark.Seq < s.Seq {
			r.fail(fmt.Errorf("refused %s as repeated, presented %+v, mark %+v: these are not its facts",
				s, refused.Presented, refused.Mark))
		}
	default:
		r.fail(fmt.Errorf("%s with %s: %w", kind, s, err))
	}
}

// look reads the content and then the mark. The mark must never be behind the
// content.
func (r *arena) look(on Handle) {
	before, beforeAt, ok := r.lookAtMark(on)
	if !ok {
		return
	}
	e := Event{Kind: Read, Who: "a reader", Begin: r.clock.Add(1)}
	content, written, err := r.res.Read(r.ctx)
	e.End = r.clock.Add(1)
	if err != nil {
		r.fail(fmt.Errorf("read: %w", err))
		return
	}
	if written {
		rank, _, err := parse(content)
		if err != nil {
			r.fail(err)
			return
		}
		e.Token = rank
		r.add(e)
	}
	after, afterAt, ok := r.lookAtMark(on)
	if !ok {
		return
	}
	if written && after < e.Token {
		r.fail(fmt.Errorf("the content is of %d, and the mark read after it of %d: the mark is behind", e.Token, after))
	}
	// Between two equal marks the guard has admitted nothing newer. A write of
	// the mark's owner must have ended before, because its raise alone brings
	// no content.
	if !r.whole.MarkLeads && before == after && e.Token != after && r.wrote(after, beforeAt) {
		r.fail(fmt.Errorf("the mark is %d before [%d] and after [%d] reading content of %d,"+
			" though a write of %d had ended", after, beforeAt, afterAt, e.Token, after))
	}
}

// wrote reports whether a write of that rank was answered by the given time.
func (r *arena) wrote(rank fence.Token, at int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.history {
		if e.Kind == Write && e.Token == rank && e.End <= at {
			return true
		}
	}
	return false
}

func (r *arena) lookAtMark(on Handle) (fence.Token, int64, bool) {
	e := Event{Kind: Look, Who: "a reader", Begin: r.clock.Add(1)}
	mark, err := on.Mark(r.ctx)
	e.End = r.clock.Add(1)
	if err != nil {
		r.fail(fmt.Errorf("mark: %w", err))
		return 0, 0, false
	}
	e.Token = mark.Token
	if r.bySeq {
		e.Token = fence.Token(mark.Seq)
	}
	r.add(e)
	return e.Token, e.Begin, true
}

// judge checks the whole history after all goroutines have ended.
func (r *arena) judge() {
	r.t.Helper()
	if r.err != nil {
		r.t.Errorf("%v", r.err)
	}
	r.look(r.Handle)
	for _, broken := range Law3(r.history) {
		r.t.Errorf("law 3 is broken: %s", broken)
	}
	content, written, err := r.res.Read(context.WithoutCancel(r.ctx))
	if err != nil || !written {
		r.t.Fatalf("after the race there is no content (%v)", err)
	}
	rank, id, err := parse(content)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.refused[id] {
		r.t.Errorf("the content is that of call %d, which was refused", id)
	}
	var top, wrote fence.Token
	for _, e := range r.history {
		if top = max(top, e.Token); e.Kind == Write {
			wrote = max(wrote, e.Token)
		}
	}
	if top != r.highest {
		r.t.Errorf("the highest presented was %d and the highest admitted %d: the newest owner was refused",
			r.highest, top)
	}
	if rank != wrote {
		r.t.Errorf("the content is of %d, though %d was admitted", rank, wrote)
	}
}

// payload makes a content that shows its rank, and whether it is complete.
func payload(rank fence.Token, id int) []byte {
	line := fmt.Sprintf("rank %d call %d\n", rank, id)
	return bytes.Repeat([]byte(line), 50+id%50)
}

func parse(content []byte) (rank fence.Token, id int, err error) {
	if _, err := fmt.Sscanf(string(content), "rank %d call %d\n", &rank, &id); err != nil {
		return 0, 0, fmt.Errorf("the content is %.60q (%d bytes), which nobody wrote", content, len(content))
	}
	if !bytes.Equal(content, payload(rank, id)) {
		return 0, 0, fmt.Errorf("readers see a part: %d bytes that begin with %.40q", len(content), content)
	}
	return rank, id, nil
}
