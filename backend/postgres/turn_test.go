package postgres

import (
	"log/slog"
	"testing"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestATurnMayBeFasterThanTheAnswer: a client that is refused is entered among those who wait, and may be named before it has read the refusal. It must not count itself as
// waiting then, or it would ask in vain once more and be forgotten.
func TestATurnMayBeFasterThanTheAnswer(t *testing.T) {
	t.Parallel()
	const key = "turn/key"
	for _, named := range []bool{false, true} {
		l := newListener(&Store{}, slog.Default())
		on := &line{}
		l.line = on
		c, ok := l.add(t.Context(), on, key)
		if !ok {
			t.Fatal("not added")
		}
		b := &batch{requests: []tenure.Request{{Verb: tenure.Acquire, Key: key}}, answers: make([]store.Answer, 1)}
		l.asking(b)
		if b.waiter(0) != l.id {
			t.Fatalf("asks as %q", b.waiter(0))
		}
		if named {
			l.hear(turnPrefix + l.id + " " + key)
			<-c
		}
		b.answers[0].Err = &tenure.HeldError{}
		l.asked(b)
		next := &batch{requests: b.requests, answers: b.answers}
		l.asking(next)
		if again := next.waiter(0) == l.id; again != named {
			t.Errorf("named meanwhile: %v; asks to be entered again: %v", named, again)
		}
		l.mu.Lock()
		l.keys[key].stop()
		l.mu.Unlock()
	}
}

// TestWhoIsGrantedTheKeyIsOffTheList: the server takes a client off the list of those who wait together with the grant. An entry that was made just before, and is heard of after, must not be counted on: who
// waits next at this client would be woken by nothing.
func TestWhoIsGrantedTheKeyIsOffTheList(t *testing.T) {
	t.Parallel()
	const key = "turn/granted"
	for _, first := range []string{"the entry", "the grant"} {
		l := newListener(&Store{}, slog.Default())
		on := &line{}
		l.line = on
		if _, ok := l.add(t.Context(), on, key); !ok {
			t.Fatal("not added")
		}
		b := &batch{requests: []tenure.Request{{Verb: tenure.Acquire, Key: key}}, answers: make([]store.Answer, 1)}
		l.asking(b)
		turns := l.keys[key].turns // when the entry was sent
		for _, heard := range []bool{first == "the entry", first != "the entry"} {
			if heard {
				l.mu.Lock()
				l.entered(on, key, turns)
				l.mu.Unlock()
			} else {
				l.asked(b)
			}
		}
		next := &batch{requests: b.requests, answers: b.answers}
		l.asking(next)
		if next.waiter(0) != l.id {
			t.Errorf("%s is heard of first: the next who asks is not entered", first)
		}
		l.mu.Lock()
		l.keys[key].stop()
		l.mu.Unlock()
	}
}

// TestAnEntryFromBeforeTheLineBrokeIsNotCountedOn: the server may be another now, or one that was restored from an older backup.
func TestAnEntryFromBeforeTheLineBrokeIsNotCountedOn(t *testing.T) {
	t.Parallel()
	const key = "turn/broken"
	l := newListener(&Store{}, slog.Default())
	before, after := &line{}, &line{}
	l.line = before
	if _, ok := l.add(t.Context(), before, key); !ok {
		t.Fatal("not added")
	}
	b := &batch{requests: []tenure.Request{{Verb: tenure.Acquire, Key: key}}, answers: make([]store.Answer, 1)}
	l.asking(b)
	b.answers[0].Err = &tenure.HeldError{}
	l.broke(before)
	l.line = after
	l.asked(b)
	if _, ok := l.add(t.Context(), after, key); !ok {
		t.Fatal("not added")
	}
	next := &batch{requests: b.requests, answers: b.answers}
	l.asking(next)
	if next.waiter(0) != l.id {
		t.Error("who watches over the new line does not ask to be entered")
	}
	l.mu.Lock()
	l.keys[key].stop()
	l.mu.Unlock()
}
