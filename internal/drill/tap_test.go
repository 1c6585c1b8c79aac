package drill

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func acquireOf(secret tenure.Secret) []tenure.Request {
	return []tenure.Request{{Verb: tenure.Acquire, Key: "k", Secret: secret, Owner: "A", TTL: time.Minute}}
}

func TestALostReplyIsOfARequestThatWasCarriedOut(t *testing.T) {
	st := mem.New(nil)
	tap := newTap(st)
	tap.lose()
	secret := tenure.NewSecret()
	if a := tap.Apply(t.Context(), acquireOf(secret))[0]; !errors.Is(a.Err, store.ErrUnknown) {
		t.Fatalf("%v, want it lost", a.Err)
	}
	again := tap.Apply(t.Context(), acquireOf(secret))[0]
	if again.Err != nil {
		t.Fatal(again.Err)
	}
	if tokens := tap.granted(); len(tokens) != 2 || tokens[0] != again.Record.Token || tokens[1] != tokens[0] {
		t.Errorf("tokens %v, want %d twice", tokens, again.Record.Token)
	}
}

func TestARepeatedRequestIsTheFirstOneByteForByte(t *testing.T) {
	st := mem.New(nil)
	tap := newTap(st)
	if _, err := tap.repeat(t.Context()); err == nil {
		t.Error("repeated what was never sent")
	}
	first := tap.Apply(t.Context(), acquireOf(tenure.NewSecret()))[0]
	tap.Apply(t.Context(), acquireOf(tenure.NewSecret())) // refused, and not the first
	if rec, err := tap.repeat(t.Context()); err != nil || rec.Token != first.Record.Token {
		t.Errorf("token %d, %v; want the same answer, %d", rec.Token, err, first.Record.Token)
	}
}

func TestACutStoreHangsUntilTheContextEndsOrItIsReachedAgain(t *testing.T) {
	st := mem.New(nil)
	tap := newTap(st)
	tap.cut()
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan store.Answer)
	go func() { answers <- tap.Apply(ctx, acquireOf(tenure.NewSecret()))[0] }()
	cancel()
	if a := <-answers; !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("%v, want unknown because of the context", a.Err)
	}
	if rec, err := st.Get(t.Context(), "k"); err != nil || !rec.IsZero() {
		t.Errorf("%+v, %v; want that nothing reached the store", rec, err)
	}
	go func() { answers <- tap.Apply(t.Context(), acquireOf(tenure.NewSecret()))[0] }()
	tap.reach()
	if a := <-answers; a.Err != nil {
		t.Errorf("reached again: %v", a.Err)
	}
	tap.reach() // a second call does nothing
}
