package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// worker takes keys in a store in virtual time, and renews them as the client
// does.
type worker struct {
	t        *testing.T
	st       store.Store
	instance string
	ttl      time.Duration
}

func (w worker) apply(q tenure.Request) store.Answer {
	return w.st.Apply(w.t.Context(), []tenure.Request{q})[0]
}

// work holds a key for a while. After half of that time it stands still for the
// pause. If it then still has the key, it ends its work and releases the key.
func (w worker) work(key string, held, pause time.Duration) {
	w.t.Helper()
	q := tenure.Request{
		Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "ann@one", Instance: w.instance, TTL: w.ttl,
	}
	if a := w.apply(q); a.Err != nil {
		w.t.Fatal(a.Err)
	}
	q.Verb = tenure.Renew
	every := renewal.Policy{TTL: w.ttl}.Interval()
	renewed := time.Duration(0)
	for now := time.Duration(0); now < held; {
		next := min(renewed+every, held)
		time.Sleep(next - now)
		if now < held/2 && next >= held/2 && pause > 0 {
			time.Sleep(pause)
		}
		now = next
		if now < held {
			if a := w.apply(q); a.Err != nil {
				return
			}
			renewed = now
		}
	}
	q.Verb = tenure.Release
	w.apply(q)
}

// aWeek plays a week of four kinds of work.
func aWeek(t *testing.T, st store.Store) {
	for n := range 120 { // quick, with a TTL that is far too long
		worker{t, st, fmt.Sprint("sync", n), 5 * time.Minute}.work(fmt.Sprintf("tenants/%d/sync", n%10),
			time.Duration(800+n*25)*time.Millisecond, 0)
	}
	for n := range 28 { // long, and well kept
		worker{t, st, fmt.Sprint("report", n), time.Minute}.work("reports/"+time.Now().Format(time.DateOnly),
			time.Duration(4+n%6)*time.Minute, 0)
		time.Sleep(6 * time.Hour)
	}
	train := worker{t, st, "train1", 15 * time.Second}
	for n := range 30 { // its machine stands still at times
		pause := time.Duration(0)
		if n%10 == 5 {
			pause = 14 * time.Second
		}
		train.work("train/model-7", 10*time.Minute, pause)
		time.Sleep(time.Second)
	}
	for range 3 {
		worker{t, st, "import", time.Minute}.work("imports/eu", 40*time.Second, 0)
	}
}

// TestThePageOnTTLsShowsARunOfTheCommand: set UPDATE_SCRIPTS to write it again.
func TestThePageOnTTLsShowsARunOfTheCommand(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(nil)
		defer st.Close()
		aWeek(t, st)
		a := &app{App: &cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &bytes.Buffer{}, Timeout: time.Minute}}
		if err := a.advise(t.Context(), st, ""); err != nil {
			t.Fatal(err)
		}
	})
	const path = "../../docs/ttl.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), "$ croft inventory --advise\n")
	shown, after, ends := strings.Cut(rest, "```\n")
	if !begins || !ends {
		t.Fatal("the page shows no run of the command")
	}
	if shown == out.String() {
		return
	}
	if os.Getenv("UPDATE_SCRIPTS") == "" {
		t.Fatalf("the page shows\n%s\nthe command prints\n%s", shown, out.String())
	}
	page = []byte(before + "$ croft inventory --advise\n" + out.String() + "```\n" + after)
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAdviceIsDrawnFromWhatWasSeen: each case is a key's history, and the
// advice for it.
func TestAdviceIsDrawnFromWhatWasSeen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	// history has n terms of an owner each. change changes the newest.
	history := func(n int, ttl, held time.Duration, ended tenure.End, change func(*tenure.Record)) tenure.Record {
		rec := tenure.Record{Key: "k", State: tenure.Free, Cause: tenure.Released, Ended: ended, TTL: ttl}
		for i := range n {
			at := now.Add(time.Duration(i-n) * time.Hour)
			rec.Token++
			rec.Acquired, rec.Renewed, rec.Deadline = at, at.Add(held), at.Add(held)
			rec.History = append(rec.History, tenure.Term{
				Token: rec.Token, Instance: fmt.Sprint(i), State: tenure.Held, Cause: tenure.Released, Acquired: at,
				Finished: at.Add(held), Ended: ended,
			})
		}
		if change != nil {
			change(&rec)
		}
		return rec
	}
	alive := func(age time.Duration) func(*tenure.Record) {
		return func(r *tenure.Record) {
			r.State, r.Ended, r.Renewed, r.Deadline = tenure.Held, "", now.Add(-age), now.Add(r.TTL-age)
			last := &r.History[len(r.History)-1]
			last.Finished, last.Ended = time.Time{}, ""
		}
	}
	expire := func(i int, instance string) func(*tenure.Record) {
		return func(r *tenure.Record) {
			r.History[i].Ended, r.History[i+1].Instance = tenure.EndExpired, instance
			r.History[i].Finished = r.History[i+1].Acquired.Add(-20 * time.Second)
		}
	}
	operator := func(r *tenure.Record) {
		r.State, r.Cause, r.History[len(r.History)-1].Cause = tenure.Held, tenure.Operator, tenure.Operator
	}
	short := func(ttl time.Duration) string {
		if ttl == 0 {
			return ""
		}
		return shortTTL(ttl)
	}
	const released, expired = tenure.EndReleased, tenure.EndExpired
	for _, c := range []struct {
		name         string
		rec          tenure.Record
		refused      []refusals.Refusal
		want, reason string
	}{
		{"few terms", history(3, time.Minute, time.Second, released, nil), nil, "", "3 terms: too few to advise"},
		{"one term", history(1, time.Minute, time.Second, released, nil), nil, "", "1 term: too few to advise"},
		{
			"long work", history(30, time.Minute, time.Hour, released, nil), nil, "1m",
			"no owner lost its key by a pause: keep 1m; after a crash others wait at most that long",
		},
		{"short work", history(30, 10*time.Minute, 9*time.Second, released, nil), nil, "30s", "covers them without a renewal"},
		{"short work and a short TTL", history(30, 5*time.Second, time.Second, released, nil), nil, "5s", "keep 5s"},
		{"a late renewal", history(30, time.Minute, time.Hour, released, alive(50*time.Second)), nil, "2m", "30s late"},
		{"a renewal in time", history(30, time.Minute, time.Hour, released, alive(20*time.Second)), nil, "1m", "keep 1m"},
		{"a dead owner", history(30, time.Minute, time.Hour, released, expire(3, "another")), nil, "1m", "1 owner expired and did not return"},
		{
			"a paused owner", history(30, time.Minute, time.Hour, released, expire(3, "3")), nil, "3m",
			"1 owner expired and returned up to 1m20s after the last renewal: 3m survives pauses of 1m42s",
		},
		{
			"a refused owner", history(30, time.Minute, time.Hour, released, expire(3, "another")),
			[]refusals.Refusal{{Key: "k", Token: 4, Owner: "ann", At: now.Add(-26*time.Hour + 10*time.Second)}},
			"3m", "up to 1m30s after",
		},
		{
			"an invented stamp", history(30, time.Minute, time.Hour, released, expire(3, "another")),
			[]refusals.Refusal{{Key: "k", Token: 4, At: now.Add(-26*time.Hour + 10*time.Second)}},
			"1m", "did not return",
		},
		{
			"an owner that slept overnight", history(30, time.Minute, time.Hour, released, expire(3, "another")),
			[]refusals.Refusal{{Key: "k", Token: 4, Owner: "ann", At: now.Add(-16 * time.Hour)}},
			"1m", "did not return",
		},
		{"keys that nobody releases", history(30, time.Minute, time.Minute, expired, nil), nil, "", "30 of 30 terms expired"},
		{"an operator's key", history(30, time.Minute, time.Hour, released, operator), nil, "", "its owners' TTL is not known"},
	} {
		s := newSurvey(now, c.refused)
		s.add(c.rec)
		s.countTerms(s.view(c.rec.Key), c.rec)
		if got := s.advice()[0]; short(got.ttl) != c.want || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: advised %q, want %q: %s", c.name, short(got.ttl), c.want, got.Reason)
		}
	}
}

// TestKeysThatAreNamedAlikeCountTogether: numbers, dates and identifiers do not
// make them different.
func TestKeysThatAreNamedAlikeCountTogether(t *testing.T) {
	for key, want := range map[string]string{
		"nightly":                              "nightly",
		"tenants/42/sync":                      "tenants/*/sync",
		"reports/2026-11-18":                   "reports/*",
		"reports/2026-11-18T06:00:00Z":         "reports/*Z",
		"orders/order-17":                      "orders/order-*",
		"550e8400-e29b-41d4-a716-446655440000": "*",
		"q/0123456789abcdef0123456789abcdef":   "q/*",
		"q/01ARZ3NDEKTSV4RRFFQ69G5FAV":         "q/*",
		"commit/deadbee1":                      "commit/*",
		"deadbeef/decade":                      "deadbeef/decade",
		"shard-3-of-8":                         "shard-*-of-*",
		"żółć/7":                               "żółć/*",
	} {
		if got := likeness(key); got != want {
			t.Errorf("%s is like %s, want %s", key, got, want)
		}
	}
	s := newSurvey(time.Now(), nil)
	for _, first := range "abcdefghijklmnopqrstuvwxyz" {
		for _, second := range "abcdefghijklmnopqrstuvwxyz" {
			s.add(tenure.Record{Key: "users/" + string(first) + string(second)})
		}
	}
	all := s.advice()
	if last := all[len(all)-1]; len(all) != mostAlike+1 || last.Like != "users/…" || last.Keys != 26*26-mostAlike {
		t.Errorf("%d kinds, the last %s with %d keys", len(all), last.Like, last.Keys)
	}
}

// TestAQuantileIsAtMostAPercentTooLong: whatever the scale.
func TestAQuantileIsAtMostAPercentTooLong(t *testing.T) {
	s := spans{count: map[int]int{}}
	for i := range 1000 {
		s.add(time.Duration(i+1) * time.Second)
	}
	s.add(0)
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Second, 0.99: 990 * time.Second, 1: 1000 * time.Second} {
		if got := s.quantile(q); got < want-time.Second || float64(got) > 1.011*float64(want) {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
}

// TestManyHistoriesAreSampled: every key is counted, and the terms of some.
func TestManyHistoriesAreSampled(t *testing.T) {
	t.Parallel()
	st := mem.New(nil)
	defer st.Close()
	s := newSurvey(time.Now(), nil)
	for n := range mostSampled + 500 {
		w := worker{t, st, "one", time.Minute}
		w.work(fmt.Sprint("items/", n), 0, 0)
	}
	for rec, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		s.add(rec)
	}
	var read atomic.Int64
	if err := s.readHistories(t.Context(), st, func() { read.Add(1) }); err != nil {
		t.Fatal(err)
	}
	got := s.advice()[0]
	if got.Keys != mostSampled+500 || got.Terms != mostSampled || read.Load() != mostSampled {
		t.Errorf("%d keys, %d terms, %d reads", got.Keys, got.Terms, read.Load())
	}
}

// TestAStoreThatFailsGivesNoAdvice: half of the histories would mislead.
func TestAStoreThatFailsGivesNoAdvice(t *testing.T) {
	t.Parallel()
	st := mem.New(nil)
	defer st.Close()
	for n := range 100 {
		worker{t, st, "one", time.Minute}.work(fmt.Sprint("items/", n), 0, 0)
	}
	var out bytes.Buffer
	a := &app{App: &cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &bytes.Buffer{}, Timeout: time.Minute}}
	err := a.advise(t.Context(), &failsAfter{Store: st, reads: 50}, "")
	if !errors.Is(err, store.ErrUnknown) || out.Len() > 0 {
		t.Errorf("%v, printed %q", err, out.String())
	}
}

// failsAfter is a store that fails after so many reads.
type failsAfter struct {
	store.Store
	reads int64
	done  atomic.Int64
}

func (f *failsAfter) Get(ctx context.Context, key string) (tenure.Record, error) {
	if f.done.Add(1) > f.reads {
		return tenure.Record{}, errors.New("the disk has failed")
	}
	return f.Store.Get(ctx, key)
}
