package tenure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// allVerbs has a complete request of every kind.
var allVerbs = []string{"acquire", "renew", "report", "checkpoint", "release", "takeover", "reserve:eve", "revoke"}

// TestCheckRefusesEveryBadRequest tries every limit, just inside and just
// outside, with the verbs to which it applies. A verb may leave out the fields
// that it does not use.
func TestCheckRefusesEveryBadRequest(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	begins := []tenure.Verb{tenure.Acquire, tenure.Takeover, tenure.Reserve}
	byHand := []tenure.Verb{tenure.Takeover, tenure.Reserve, tenure.Revoke}
	withTTL := append([]tenure.Verb{tenure.Renew}, begins...)
	const invalid, fine = false, true
	for _, c := range []struct {
		name  string
		only  []tenure.Verb // the verbs to which it applies; nil: all
		spoil func(*tenure.Request)
		want  bool
		says  string
	}{
		{"nothing", nil, func(*tenure.Request) {}, fine, ""},
		{"no key", nil, func(q *tenure.Request) { q.Key = "" }, invalid, "key: it is empty"},
		{"bad key", nil, func(q *tenure.Request) { q.Key = "../x" }, invalid, `may not be ".."`},
		{"long key", nil, func(q *tenure.Request) { q.Key = long(fence.MaxKey + 1) }, invalid, "at most 512"},
		{"longest key", nil, func(q *tenure.Request) { q.Key = long(fence.MaxKey) }, fine, ""},
		{"no secret", nil, func(q *tenure.Request) { q.Secret = "" }, invalid, "32 lower-case hex digits"},
		{"short secret", nil, func(q *tenure.Request) { q.Secret = q.Secret[1:] }, invalid, "32 lower-case hex digits"},
		{"bad secret", nil, func(q *tenure.Request) { q.Secret = "G" + q.Secret[1:] }, invalid, "32 lower-case hex digits"},
		{"no verb", nil, func(q *tenure.Request) { q.Verb = "" }, invalid, `verb ""`},
		{"unknown verb", nil, func(q *tenure.Request) { q.Verb = "Acquire" }, invalid, `verb "Acquire"`},

		{"no TTL", begins, func(q *tenure.Request) { q.TTL = 0 }, invalid, "TTL 0s: it must be between 10ms and 720h0m0s"},
		{"negative TTL", withTTL, func(q *tenure.Request) { q.TTL = -time.Second }, invalid, "TTL -1s"},
		{"short TTL", withTTL, func(q *tenure.Request) { q.TTL = tenure.MinTTL - 1 }, invalid, "TTL 9.999999ms"},
		{"shortest TTL", withTTL, func(q *tenure.Request) { q.TTL = tenure.MinTTL }, fine, ""},
		{"longest TTL", withTTL, func(q *tenure.Request) { q.TTL = tenure.MaxTTL }, fine, ""},
		{"long TTL", withTTL, func(q *tenure.Request) { q.TTL = tenure.MaxTTL + 1 }, invalid, "TTL 720h0m0.000000001s"},
		{"no TTL at a renewal", []tenure.Verb{tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release, tenure.Revoke}, func(q *tenure.Request) { q.TTL = 0 }, fine, ""},

		{"no owner", begins, func(q *tenure.Request) { q.Owner = "" }, invalid, "owner: it is empty; say who asks"},
		{"blank owner", begins, func(q *tenure.Request) { q.Owner = " \u00a0" }, invalid, "owner: it is empty"},
		{"no owner otherwise", []tenure.Verb{tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release, tenure.Revoke}, func(q *tenure.Request) { q.Owner = "" }, fine, ""},
		{"no instance", nil, func(q *tenure.Request) { q.Instance = "" }, fine, ""},
		{"no actor", byHand, func(q *tenure.Request) { q.Actor = "" }, invalid, "needs an actor and a note that says why"},
		{"blank actor", byHand, func(q *tenure.Request) { q.Actor = " " }, invalid, "needs an actor and a note that says why"},
		{"no note", byHand, func(q *tenure.Request) { q.Note = "" }, invalid, "needs an actor and a note that says why"},
		{"blank note", byHand, func(q *tenure.Request) { q.Note = "  " }, invalid, "needs an actor and a note that says why"},
		{"no actor otherwise", []tenure.Verb{tenure.Acquire, tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release}, func(q *tenure.Request) { q.Actor, q.Note = "", "" }, fine, ""},

		{"negative above", nil, func(q *tenure.Request) { q.Above = -1 }, invalid, "above -1: it must be between 0 and 4503599627370496"},
		{"highest above", nil, func(q *tenure.Request) { q.Above = tenure.MaxAbove }, fine, ""},
		{"above too high", nil, func(q *tenure.Request) { q.Above = tenure.MaxAbove + 1 }, invalid, "above 4503599627370497"},
		{"negative period", nil, func(q *tenure.Request) { q.Every = -1 }, invalid, "period -1ns: it must be between 0 and 8784h0m0s"},
		{"longest period", nil, func(q *tenure.Request) { q.Every = tenure.MaxPeriod }, fine, ""},
		{"once", nil, func(q *tenure.Request) { q.Every = tenure.Once }, fine, ""},
		{"more than once", nil, func(q *tenure.Request) { q.Every = tenure.Once - 1 }, invalid, "period 1751999h59m59.999999999s"},
		{"long period", nil, func(q *tenure.Request) { q.Every = tenure.MaxPeriod + 1 }, invalid, "period 8784h0m0.000000001s"},
		{"negative hold", nil, func(q *tenure.Request) { q.HoldFor = -1 }, invalid, "hold -1ns"},
		{"longest hold", nil, func(q *tenure.Request) { q.HoldFor = tenure.MaxPeriod }, fine, ""},
		{"long hold", nil, func(q *tenure.Request) { q.HoldFor = tenure.MaxPeriod + 1 }, invalid, "hold 8784h0m0.000000001s"},

		{"most guards", nil, func(q *tenure.Request) { q.Guards = slices.Repeat([]string{"x"}, tenure.MaxGuards) }, fine, ""},
		{"too many guards", nil, func(q *tenure.Request) { q.Guards = slices.Repeat([]string{"x"}, tenure.MaxGuards+1) }, invalid, "guards: 17 named, at most 16"},
		{"empty guard", nil, func(q *tenure.Request) { q.Guards = []string{"x", ""} }, invalid, "guard: an empty target"},
		{"longest guard", nil, func(q *tenure.Request) { q.Guards = []string{long(tenure.MaxText)} }, fine, ""},
		{"long guard", nil, func(q *tenure.Request) { q.Guards = []string{long(tenure.MaxText + 1)} }, invalid, "guard: 1025 bytes long, at most 1024"},
		{"bad guard", nil, func(q *tenure.Request) { q.Guards = []string{"a\nb"} }, invalid, `guard "a\nb": it has a control character`},

		{"longest owner", nil, func(q *tenure.Request) { q.Owner = long(tenure.MaxName) }, fine, ""},
		{"long owner", nil, func(q *tenure.Request) { q.Owner = long(tenure.MaxName + 1) }, invalid, "owner: 257 bytes long, at most 256"},
		{"bad owner", nil, func(q *tenure.Request) { q.Owner = "a\x1b[2Jb" }, invalid, `owner "a\x1b[2Jb": it has a control character`},
		{"owner not UTF-8", nil, func(q *tenure.Request) { q.Owner = "a\xff" }, invalid, `owner "a\xff": it is not valid UTF-8`},
		{"longest instance", nil, func(q *tenure.Request) { q.Instance = long(tenure.MaxName) }, fine, ""},
		{"long instance", nil, func(q *tenure.Request) { q.Instance = long(tenure.MaxName + 1) }, invalid, "instance: 257 bytes"},
		{"bad instance", nil, func(q *tenure.Request) { q.Instance = "\t" }, invalid, `instance "\t": it has a control character`},
		{"longest actor", nil, func(q *tenure.Request) { q.Actor = long(tenure.MaxName) }, fine, ""},
		{"long actor", nil, func(q *tenure.Request) { q.Actor = long(tenure.MaxName + 1) }, invalid, "actor: 257 bytes"},
		{"bad actor", nil, func(q *tenure.Request) { q.Actor = "a\u0085" }, invalid, "control character"},
		{"longest note", nil, func(q *tenure.Request) { q.Note = long(tenure.MaxText) }, fine, ""},
		{"long note", nil, func(q *tenure.Request) { q.Note = long(tenure.MaxText + 1) }, invalid, "note: 1025 bytes"},
		{"note of two lines", nil, func(q *tenure.Request) { q.Note = "a\nb" }, invalid, `note "a\nb": it has a control character`},
		{"longest marker", nil, func(q *tenure.Request) { q.Progress = long(tenure.MaxText) }, fine, ""},
		{"long marker", nil, func(q *tenure.Request) { q.Progress = long(tenure.MaxText + 1) }, invalid, "progress marker: 1025 bytes"},
		{"largest checkpoint, of any bytes", nil, func(q *tenure.Request) { q.Checkpoint = strings.Repeat("\x00\xff", tenure.MaxCheckpoint/2) }, fine, ""},
		{"large checkpoint", nil, func(q *tenure.Request) { q.Checkpoint = long(tenure.MaxCheckpoint + 1) }, invalid, "checkpoint: 1025 bytes long, at most 1024"},
		{"bad marker", nil, func(q *tenure.Request) { q.Progress = "\x00" }, invalid, "progress marker"},
	} {
		for _, verb := range allVerbs {
			q := ask(verb, "ann")
			if c.only != nil && !slices.Contains(c.only, q.Verb) {
				continue
			}
			c.spoil(&q)
			err := q.Check()
			if c.want == fine {
				if err != nil {
					t.Errorf("%s, %s: %v", verb, c.name, err)
				}
				continue
			}
			if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), c.says) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("%s, %s: %v; want it invalid and say %q on one line", verb, c.name, err, c.says)
			}
			rec := play(t, "0s acquire ann")
			if next, changed, applied := tenure.Apply(rec, q, after(time.Second)); changed || applied == nil || applied.Error() != err.Error() || next.Token != rec.Token {
				t.Errorf("%s, %s: the law says %v where Check says %v", verb, c.name, applied, err)
			}
		}
	}
}

// TestARequestForAnotherKeyIsRefused: a store that mixes up its records gets an
// error.
func TestARequestForAnotherKeyIsRefused(t *testing.T) {
	rec := play(t, "0s acquire ann")
	for _, verb := range allVerbs {
		q := ask(verb, "ann")
		q.Key = "another"
		_, changed, err := tenure.Apply(rec, q, noon)
		if want := `invalid request: it is for "another", the record is of "reports/daily"`; changed || !errors.Is(err, fence.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: %v, want %s", verb, err, want)
		}
	}
}

// TestByHandAreTheOperatorsVerbs: ByHand is true for the operator's verbs only.
func TestByHandAreTheOperatorsVerbs(t *testing.T) {
	for _, verb := range allVerbs {
		q := ask(verb, "ann")
		if want := q.Verb == tenure.Takeover || q.Verb == tenure.Reserve || q.Verb == tenure.Revoke; q.Verb.ByHand() != want {
			t.Errorf("%s by hand: %v", q.Verb, !want)
		}
	}
}
