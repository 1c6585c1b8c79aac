package keep

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawTerms draws a lease's terms.
func drawTerms(t *rapid.T) Terms {
	ttl := time.Duration(rapid.IntRange(1, 60).Draw(t, "TTL in seconds")) * time.Second
	return Terms{
		TTL: ttl, MaxFailures: rapid.IntRange(1, 4).Draw(t, "max failures"),
		Notice: ttl * time.Duration(rapid.IntRange(0, 50).Draw(t, "notice in percent")) / 100,
	}
}

// begin lets all holders wait for the key, and the faults last for many terms.
func (w *world) begin(t *rapid.T) {
	ttl := w.actors[0].terms.TTL
	for _, a := range w.actors {
		w.at(w.upTo(ttl), func() { a.wait(time.Hour) })
	}
	w.run(time.Duration(rapid.IntRange(1, 4000).Draw(t, "faults in hundredths of a term")) * ttl / 100)
	for _, b := range w.broken {
		t.Fatal(b)
	}
}

// TestLaw5NoHolderBelievesLongerThanTheStore: messages are lost, late and doubled, holders pause and crash, clocks run at different rates.
func TestLaw5NoHolderBelievesLongerThanTheStore(t *testing.T) {
	grants := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 5).Draw(t, "holders"), drawTerms(t))
		w.begin(t)
		for _, a := range w.actors {
			grants += a.granted
		}
	})
	if grants == 0 {
		t.Error("nobody was ever granted the key: nothing was shown")
	}
}

// TestLaw6EveryUnknownOutcomeResolves: at no time does a grant stand that nobody was told of and nobody pursues, and soon after the faults have
// stopped every wait that was left in the background has come to its end.
func TestLaw6EveryUnknownOutcomeResolves(t *testing.T) {
	resolved := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 5).Draw(t, "holders"), drawTerms(t))
		w.tame = true
		w.begin(t)
		w.faulty = false
		stopped := w.now
		w.run(stopped + 2*call + 2*PollMax)
		for _, b := range w.broken {
			t.Fatal(b)
		}
		for _, a := range w.actors {
			for _, b := range a.background {
				if b.since <= stopped {
					t.Errorf("a wait that %s left %s before the faults stopped is still being resolved", a.name, stopped-b.since)
				}
			}
			resolved += a.resolved
		}
	})
	if resolved == 0 {
		t.Error("no wait was ever left behind: nothing was shown")
	}
}

// TestTheWorldCatchesBrokenHolders: the laws above would mean nothing if it did not.
func TestTheWorldCatchesBrokenHolders(t *testing.T) {
	spoil := map[string]func(*actor){
		"one whose clock is too slow":            func(a *actor) { a.rate = 0.8 },
		"one that leaves unknown outcomes alone": func(a *actor) { a.careless = true },
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				w := newWorld(seed, 3, Terms{TTL: 5 * time.Second, MaxFailures: 3})
				w.tame = true
				for _, a := range w.actors {
					spoil(a)
					w.at(w.upTo(time.Second), func() { a.wait(time.Hour) })
				}
				w.run(5 * time.Minute)
				if len(w.broken) > 0 {
					t.Logf("caught by %q: %s", "the world of holders", w.broken[0])
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// TestLaw9AWaiterAcquiresSoonAfterFaultsStop: the holder has crashed, nothing else is wrong any more.
func TestLaw9AWaiterAcquiresSoonAfterFaultsStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := drawTerms(t)
		w := newWorld(rapid.Uint64().Draw(t, "seed"), 2, terms)
		holder, waiter := w.actors[0], w.actors[1]
		w.faulty = false
		holder.wait(0)
		w.run(time.Second / 4)
		w.faulty = true
		waiter.terms = terms
		waiter.startWait()
		w.run(time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms of faults")) * time.Millisecond)

		w.faulty = false
		w.run(w.now + call) // what was sent before is not on its way any more
		stopped := w.now
		holder.crash()
		bound := stopped + time.Duration(1.05*float64(terms.TTL+terms.Margin()+2*PollMax)) + 100*time.Millisecond // rates, and messages on their way
		w.run(bound)
		if waiter.granted == 0 && holder.granted > 0 {
			t.Fatalf("%s after faults stopped the waiter still waits (TTL %s): the store says %s by %s, deadline %s", w.now-stopped, terms.TTL, w.rec.State, w.rec.Owner, w.rec.Deadline.Sub(w.clock()))
		}
	})
}

// startWait waits until the key is granted, whatever happens.
func (a *actor) startWait() {
	a.w.faulty = false // no loss of patience
	a.wait(time.Hour)
	a.w.faulty = true
}
