package steward

import (
	"net/http"
	"testing"
	"time"
)

// TestABreakerPausesWhatFails: after five failures in a row, for longer each
// time, with one trial in between. A delivery that arrives ends it.
func TestABreakerPausesWhatFails(t *testing.T) {
	var b breaker
	now := time.Now()
	for n := 1; n < breakAfter; n++ {
		if b.failed(now, now) || b.allows(now, 16) != 16 {
			t.Fatalf("paused after %d failures", n)
		}
	}
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		begun := now
		if !b.failed(begun, now) || b.until.Sub(now) != want {
			t.Fatalf("pause %d is %s, want %s", i, b.until.Sub(now), want)
		}
		for range 16 { // those that were in flight
			if b.failed(begun.Add(-time.Second), now) {
				t.Fatal("a delivery from before the pause prolongs it")
			}
		}
		if n := b.allows(now, 16); n != 0 {
			t.Fatalf("%d deliveries in a pause", n)
		}
		now = b.until
		if b.failed(begun.Add(-time.Second), now) {
			t.Fatal("a delivery from before the pause begins another")
		}
		if n := b.allows(now, 16); n != 1 {
			t.Fatalf("%d deliveries after a pause, want one for a trial", n)
		}
	}
	b.succeeded(now)
	if n := b.allows(now, 16); n != 16 {
		t.Errorf("%d deliveries after a success", n)
	}
	if b.failed(now, now) {
		t.Error("one failure after a success begins a pause")
	}
}

// TestAReceiverThatAsksForAPauseGetsIt: other deliveries that succeed do not
// end it. It is no longer than an hour.
func TestAReceiverThatAsksForAPauseGetsIt(t *testing.T) {
	var b breaker
	now := time.Now()
	if !b.asked(now, 2*time.Minute) || b.asked(now, time.Minute) || b.asked(now, 0) {
		t.Error("want one pause of two minutes")
	}
	b.succeeded(now)
	if b.allows(now.Add(119*time.Second), 16) != 0 || b.allows(now.Add(2*time.Minute), 16) != 16 {
		t.Error("the pause was not two minutes")
	}
	if b.asked(now, 24*time.Hour); b.until.Sub(now) != time.Hour {
		t.Errorf("paused for %s", b.until.Sub(now))
	}
}

// TestRetryAfterIsUnderstood: as seconds, and as a date by the receiver's own
// clock.
func TestRetryAfterIsUnderstood(t *testing.T) {
	receiver := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	date := func(at time.Time) string { return at.Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{
		"":                                   0,
		"7":                                  7 * time.Second,
		"-7":                                 0,
		"999999999":                          24 * time.Hour,
		"soon":                               0,
		date(receiver.Add(90 * time.Second)): 90 * time.Second,
		date(receiver.Add(-time.Hour)):       0,
		date(receiver.AddDate(9, 0, 0)):      24 * time.Hour,
	} {
		h := http.Header{"Date": {date(receiver)}, "Retry-After": {value}}
		if got := retryAfter(h); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
