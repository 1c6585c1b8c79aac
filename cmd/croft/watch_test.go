package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// TestEveryTransferIsOneChange takes keys through the law and checks the
// changes that a watcher sees.
func TestEveryTransferIsOneChange(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, second, operator := tenure.NewSecret(), tenure.NewSecret(), tenure.NewSecret()
	request := func(verb tenure.Verb, s tenure.Secret) tenure.Request {
		return tenure.Request{Verb: verb, Key: "k", Secret: s, Owner: "ada@one", TTL: time.Minute}
	}
	byHand := func(verb tenure.Verb) tenure.Request {
		q := request(verb, tenure.NewSecret())
		q.Actor, q.Note = "op@x", "why"
		return q
	}
	takeover := byHand(tenure.Takeover)
	takeover.Secret = operator
	report := request(tenure.Report, second)
	report.Progress = "half"
	failed := request(tenure.Release, operator)
	failed.Failed = true
	resume := request(tenure.Renew, first)
	resume.Resume = true

	var rec tenure.Record
	var seen snapshot
	for _, step := range []struct {
		name    string
		request *tenure.Request
		after   time.Duration
		want    string
	}{
		{"acquire", ptr(request(tenure.Acquire, first)), 0, "granted"},
		{"renew", ptr(request(tenure.Renew, first)), time.Second, ""},
		{"nothing", nil, time.Second, ""},
		{"expire", nil, time.Hour, "expired"},
		{"stay expired", nil, time.Hour, ""},
		{"resume", &resume, 0, "resumed"},
		{"release", ptr(request(tenure.Release, first)), time.Second, "released"},
		{"acquire again", ptr(request(tenure.Acquire, second)), time.Second, "granted"},
		{"report", &report, time.Second, "progress"},
		{"takeover", &takeover, time.Second, "taken_over"},
		{"fail", &failed, time.Second, "failed"},
		{"reserve", ptr(byHand(tenure.Reserve)), time.Second, "reserved"},
		{"reservation ends", nil, time.Hour, "expired"},
		{"revoke", ptr(byHand(tenure.Revoke)), time.Second, "revoked"},
	} {
		now = now.Add(step.after)
		if step.request != nil {
			next, _, err := tenure.Apply(rec, *step.request, now)
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			rec = next
		}
		after := snapshot{at: now, all: map[string]tenure.Record{"k": rec}}
		got := ""
		for _, c := range changes(seen, after) {
			got += c.what
		}
		if got != step.want {
			t.Errorf("%s: changes %q, want %q", step.name, got, step.want)
		}
		seen = after
	}
	if c := changes(seen, snapshot{at: now}); len(c) != 1 || c[0].what != "forgotten" {
		t.Errorf("a dropped record: %v", c)
	}
	var missing damage
	if err := missing.rest(store.Unknown(store.ErrDamaged)); err != nil {
		t.Fatal(err)
	}
	if c := changes(seen, snapshot{at: now, damage: missing}); len(c) != 0 {
		t.Errorf("a record that may be damaged: %v", c)
	}
	if err := missing.rest(errors.Join(store.ErrDamaged, io.EOF)); !errors.Is(err, io.EOF) {
		t.Errorf("another error: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestATermBetweenTwoLooksIsShownWithItsEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := tenure.NewSecret()
	held, _, err := tenure.Apply(tenure.Record{}, tenure.Request{Verb: tenure.Acquire, Key: "k", Secret: s, Owner: "ada", TTL: time.Minute}, now)
	if err != nil {
		t.Fatal(err)
	}
	released, _, err := tenure.Apply(held, tenure.Request{Verb: tenure.Release, Key: "k", Secret: s}, now.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	for end, rec := range map[string]tenure.Record{"released": released, "expired": held} {
		got := changes(snapshot{}, snapshot{at: now, all: map[string]tenure.Record{"k": rec}})
		if len(got) != 2 || got[0].what != "granted" || got[1].what != end {
			t.Errorf("got %v, want granted and %s", got, end)
		}
	}
}

func TestARefusalIsShownOnceAndInOrder(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	older := refusals.Refusal{At: now, Key: "k", Owner: "ada", Token: 1, Newest: 2, Act: "write", Code: "stale", Target: "out.json", Count: 1}
	newer := older
	newer.At, newer.Owner, newer.Count = now.Add(time.Second), "", 3
	rec := tenure.Record{Key: "k", State: tenure.Held, Owner: "bob", Token: 2, Cause: tenure.Expired, Acquired: now.Add(time.Millisecond), Deadline: now.Add(time.Hour)}
	before := snapshot{at: now, refusals: map[refusals.Refusal]bool{}}
	after := snapshot{at: now, all: map[string]tenure.Record{"k": rec}, refusals: map[refusals.Refusal]bool{older: true, newer: true}}
	var lines []string
	for _, c := range changes(before, after) {
		lines = append(lines, changeLine(c, false))
	}
	if len(lines) != 3 || !strings.Contains(lines[0], "refused") || !strings.Contains(lines[1], "granted") || !strings.Contains(lines[2], "refused") {
		t.Fatalf("shown:\n%s", strings.Join(lines, "\n"))
	}
	for i, want := range map[int]string{0: "ada                   1  write: stale, newest is 2, at out.json", 2: "?                     1  write: stale, newest is 2 (3 times), at out.json"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("shown %q, want %q", lines[i], want)
		}
	}
	if again := changes(after, after); len(again) != 0 {
		t.Errorf("shown again: %v", again)
	}
}
