package croft

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestNothingWaitsLongerThanItMust: whatever hangs, and however many one after another, a request waits only while four batches are on their way or one that is
// younger than patientFor. One timer looks after all of them.
func TestNothingWaitsLongerThanItMust(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { hangAtRandom(r, rand.New(&locked{src: rand.NewPCG(seed, 0)}), seed%2 == 1) })
		})
	}
}

// span is from when to when something was on its way, or waited.
type span struct{ begin, end time.Duration }

func hangAtRandom(r *rig, random *rand.Rand, pipelines bool) {
	start := time.Now()
	var mu sync.Mutex
	var flights []span
	sent := map[string]time.Duration{}
	tap := &tap{Store: r.st}
	tap.set(func(ctx context.Context, batch []tenure.Request) []store.Answer {
		mu.Lock()
		f := span{begin: time.Since(start)}
		for _, req := range batch {
			sent[req.Key] = f.begin
		}
		takes := []time.Duration{0, time.Millisecond, 900 * time.Millisecond, 1100 * time.Millisecond, 20 * time.Second}[random.IntN(5)]
		mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		f.end = time.Since(start)
		flights = append(flights, f)
		return store.Failed(len(batch), errDown)
	})
	var st store.Store = tap
	if pipelines {
		st = piped{tap}
	}
	c := r.client(st, nil)
	var all sync.WaitGroup
	waits := map[string]time.Duration{}
	for n := range 60 {
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
		key := fmt.Sprint("jobs/", n)
		waits[key] = time.Since(start)
		verb := []tenure.Verb{tenure.Renew, tenure.Acquire, tenure.Acquire}[random.IntN(3)]
		s := &submission{
			requests: []tenure.Request{{Verb: verb, Key: key, Secret: tenure.NewSecret()}}, lane: lane(max(0, random.IntN(5)-2)), // mostly fresh
			to: told(func([]store.Answer, clock.Instant) { all.Done() }),
		}
		all.Add(1)
		if random.IntN(3) == 0 {
			go c.calls.carry(r.Context(), s)
		} else {
			c.calls.submit(s)
		}
	}
	all.Wait()
	most := mostInFlight
	if pipelines {
		most++
	}
	for key, since := range waits {
		if wait := (span{since, sent[key]}); wait.begin != wait.end {
			r.mustWait(key, wait, flights, most)
		}
	}
}

// mustWait checks that at no time of a wait something could have been sent.
func (r *rig) mustWait(key string, wait span, flights []span, most int) {
	r.Helper()
	moments := []time.Duration{wait.begin, wait.end}
	for _, f := range flights {
		moments = append(moments, f.begin, f.begin+patientFor, f.end)
	}
	slices.Sort(moments)
	for i, from := range moments[:len(moments)-1] {
		if to := moments[i+1]; from < wait.begin || to > wait.end || from == to {
			continue
		}
		flying, young := 0, false
		for _, f := range flights {
			if f.begin <= from && from < f.end {
				flying++
				young = young || from < f.begin+patientFor
			}
		}
		if flying < most && !young {
			r.Errorf("%s waited from %s to %s; at %s only %d batches were on their way, all of them old", key, wait.begin, wait.end, from, flying)
			return
		}
	}
}
