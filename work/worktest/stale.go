package worktest

import (
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// stale tries every verb of an owner that was replaced, after every way to
// replace it.
func stale() []check {
	var all []check
	for _, verb := range []work.Verb{
		work.Complete, work.Fail, work.Release, work.Heartbeat, work.Report, work.Checkpoint,
	} {
		all = append(all, check{"a stale " + string(verb) + " changes nothing, fans out nothing " +
			"and is recorded", func(t *trial) {
			for _, way := range []string{
				"reassign", "requeue", "cancel", "takeover", "requeue and claim", "reassign and claim",
				"requeue, claim and complete",
			} {
				h := t.replaced(way)
				req := h.by(verb)
				req.Result, req.Effects = []byte("stale result"), []work.Emission{{Name: "stale"}}
				req.Error, req.Progress, req.State = "stale", "stale", []byte("stale")
				before := len(t.refusalsOf(h.ID))
				a := t.step(req) // compares item, effects and refusals with the law
				var stale *fence.StaleError
				if !errors.As(a.Err, &stale) || stale.Presented.Token != h.Record.Token ||
					stale.PresentedOwner != "ann" {
					t.Fatalf("after %s: %v (%+v), want a stale error that names token and owner", way, a.Err, stale)
				}
				if n := len(t.refusalsOf(h.ID)); n != before+1 {
					t.Fatalf("after %s: %d refusals were recorded, want 1", way, n-before)
				}
				for _, e := range t.effectsOf(h.ID) {
					if e.Name == "stale" {
						t.Fatalf("after %s: a stale %s has written an effect", way, verb)
					}
				}
			}
		}})
	}
	return all
}

// replaced returns an owner that was shut out in the given way.
func (t *trial) replaced(way string) held {
	t.Helper()
	queue := "replaced/by " + way + "/" + string(work.NewID())
	h := t.lapsed(queue)
	switch way {
	case "reassign", "reassign and claim":
		t.must(hand(work.Reassign, h.ID))
	case "cancel", "takeover":
		t.must(hand(work.Verb(way), h.ID))
	default:
		t.rescue(h.Item)
	}
	if way == "requeue and claim" || way == "reassign and claim" || way == "requeue, claim and complete" {
		c := claimOf(queue)
		c.Owner = "cleo"
		got := t.claim(c)
		if len(got) != 1 {
			t.Fatalf("the next owner got %d items", len(got))
		}
		if way == "requeue, claim and complete" {
			done := held{got[0], c.Secret}.by(work.Complete)
			done.Result, done.Effects = []byte("the result"), []work.Emission{{Name: "charge"}}
			t.must(done)
		}
	}
	return h
}
