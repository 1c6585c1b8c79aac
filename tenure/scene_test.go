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

// The tests tell stories of people on one key. Each person has one secret, and
// the store's clock begins at noon.
const key = "reports/daily"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// secretOf returns the secret of a person, always the same.
func secretOf(who string) tenure.Secret {
	sum := sha256.Sum256([]byte(who))
	return tenure.Secret(hex.EncodeToString(sum[:16]))
}

// after returns the time d after noon.
func after(d time.Duration) time.Time { return noon.Add(d) }

// ask makes a request of a person, with a TTL of a minute and the fields that
// the verb needs. A verb may have a suffix: "acquire+hold" holds for an hour,
// "acquire+daily" is once a day, "reserve:ann" reserves for ann. The others are
// "renew+resume", "report+resume", "checkpoint+resume" and "release+failed".
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
	case tenure.Checkpoint:
		q.Owner, q.Instance, q.TTL = "", "", 0
		q.Checkpoint = "cursor of " + who + "\x00\xff"
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
	case "once":
		q.Every = tenure.Once
	case "resume":
		q.Resume = true
	case "failed":
		q.Failed = true
	default:
		panic("no such rider: " + rider)
	}
	return q
}

// play applies a story such as "0s acquire ann; 5s release ann". It fails the
// test if the law refuses any step.
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

// must applies a request that the law must allow.
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
