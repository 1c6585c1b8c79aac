package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func announcements() []check {
	return []check{
		{"an operator's act is announced to every handle", actsAreAnnounced},
		{"an owner's request is not announced as an operator's act", onlyActsAreAnnounced},
		{"announcements end with their context", actsEnd},
	}
}

// acting returns the store as an Announcer. It returns nil if the store cannot
// announce acts, and so has no promise to keep here.
func (t *trial) acting(st store.Store) store.Announcer {
	t.Helper()
	a, can := st.(store.Announcer)
	if !can {
		return nil
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	if _, err := a.Acts(ctx); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		t.Fatalf("Acts: %v", err)
	}
	return a
}

// announced waits until a key is announced. Other keys may be announced, too.
func (t *trial) announced(keys <-chan string, key, why string) {
	t.Helper()
	late := time.After(t.Patience)
	for {
		select {
		case told, open := <-keys:
			if !open {
				t.Fatalf("the announcements broke; %s should have been told", why)
			}
			if told == key {
				return
			}
		case <-late:
			t.Fatalf("%s of %s was not announced", why, key)
		}
	}
}

func actsAreAnnounced(t *trial) {
	here := t.acting(t.store)
	there := t.acting(t.open())
	if here == nil || there == nil {
		t.Logf("this store tells of no acts: holders learn of them by renewing")
		return
	}
	listeners := make([]<-chan string, 0, 3)
	for _, a := range []store.Announcer{here, there, there} {
		c, err := a.Acts(t.ctx)
		if err != nil {
			t.Fatalf("Acts: %v", err)
		}
		listeners = append(listeners, c)
	}
	n := 0
	for _, act := range []func(key string) tenure.Request{
		takeover, revoke, func(key string) tenure.Request { return reserve(key, "bob") },
	} {
		for _, begin := range []bool{true, false} { // a held key, and an unknown one
			n++
			key := fmt.Sprintf("acts/%d", n)
			if begin {
				t.must(acquire(key, "ann"))
			}
			req := act(key)
			t.must(req)
			for _, c := range listeners {
				t.announced(c, key, string(req.Verb))
			}
		}
	}
}

// onlyActsAreAnnounced: a client asks the store about every announced key for
// which it holds a lease. So a store must not announce every change.
func onlyActsAreAnnounced(t *trial) {
	a := t.acting(t.store)
	if a == nil {
		t.Logf("this store tells of no acts: holders learn of them by renewing")
		return
	}
	keys, err := a.Acts(t.ctx)
	if err != nil {
		t.Fatalf("Acts: %v", err)
	}
	mine := acquire("acts/quiet", "ann")
	t.must(mine)
	t.must(tenure.Request{Verb: tenure.Renew, Key: mine.Key, Secret: mine.Secret})
	t.must(release(mine))
	t.must(revoke("acts/loud"))
	for {
		select {
		case told, open := <-keys:
			switch {
			case !open:
				t.Fatalf("the announcements broke")
			case told == mine.Key:
				t.Fatalf("%s was announced, though no operator has acted on it", told)
			case told == "acts/loud":
				return
			}
		case <-time.After(t.Patience):
			t.Fatalf("the act was not announced")
		}
	}
}

func actsEnd(t *trial) {
	a := t.acting(t.store)
	if a == nil {
		t.Logf("this store tells of no acts: holders learn of them by renewing")
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	keys, err := a.Acts(ctx)
	if err != nil {
		t.Fatalf("Acts: %v", err)
	}
	cancel()
	late := time.After(t.Patience)
	for {
		select {
		case _, open := <-keys:
			if !open {
				return
			}
		case <-late:
			t.Fatalf("the channel is open though its context has ended")
		}
	}
}
