package tenure_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// The tests tell stories of people who each have one secret, on one key, in a store whose clock begins at noon.
const key = "reports/daily"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// secretOf is the secret of a person: always the same.
func secretOf(who string) tenure.Secret {
	sum := sha256.Sum256([]byte(who))
	return tenure.Secret(hex.EncodeToString(sum[:16]))
}

// after is the time d after noon.
func after(d time.Duration) time.Time { return noon.Add(d) }

// ask is a request of a person for a minute, with whatever the verb needs. Verbs may carry riders: "acquire+hold" holds for an hour,
// "acquire+daily" is once a day, "renew+resume", "report+resume", "release+failed", and "reserve:ann" reserves for ann.
func ask(verb, who string) tenure.Request {
	verb, forWhom, _ := strings.Cut(verb, ":")
	verb, rider, _ := strings.Cut(verb, "+")
	q := tenure.Request{
		Verb: tenure.Verb(verb), Key: key, Secret: secretOf(who), Owner: who, Instance: who + "#1", TTL: time.Minute,
	}
	switch q.Verb {
	case tenure.Renew, tenure.Release:
		q.Owner, q.Instance, q.TTL = "", "", 0
	case tenure.Report:
		q.Owner, q.Instance, q.TTL = "", "", 0
		q.Progress = "step 1 of " + who
	case tenure.Takeover, tenure.Reserve, tenure.Revoke:
		q.Actor, q.Note = who, "because "+who+" says so"
	}
	if q.Verb == tenure.Reserve {
		q.Owner, q.Instance = forWhom, ""
	}
	switch rider {
	case "":
	case "hold":
		q.HoldFor = time.Hour
	case "daily":
		q.Every = 24 * time.Hour
	case "resume":
		q.Resume = true
	case "failed":
		q.Failed = true
	default:
		panic("no such rider: " + rider)
	}
	return q
}

// play applies a story, "0s acquire ann; 5s release ann", and fails the test if the law refuses any of it.
func play(t testing.TB, story string) tenure.Record {
	t.Helper()
	var rec tenure.Record
	for act := range strings.SplitSeq(story, ";") {
		if strings.TrimSpace(act) == "" {
			continue
		}
		var at, verb, who string
		if _, err := fmt.Sscan(act, &at, &verb, &who); err != nil {
			t.Fatalf("%q: %v", act, err)
		}
		d, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		rec = must(t, rec, ask(verb, who), after(d))
	}
	return rec
}

// must applies a request that the law allows.
func must(t testing.TB, rec tenure.Record, q tenure.Request, now time.Time) tenure.Record {
	t.Helper()
	next, _, err := tenure.Apply(rec, q, now)
	if err != nil {
		t.Fatalf("%s at %s: %v", q.Verb, now.Format(time.TimeOnly), err)
	}
	if err := next.Check(); err != nil {
		t.Fatalf("%s at %s: the law made a record that is damaged: %v", q.Verb, now.Format(time.TimeOnly), err)
	}
	return next
}
