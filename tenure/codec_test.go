package tenure_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// stories lead to records of every shape.
var stories = []string{
	"0s acquire ann", "0s acquire+hold ann", "0s acquire+daily ann; 1s report ann", "0s acquire ann; 5s release ann", "0s acquire+daily ann; 5s release ann",
	"0s acquire+hold ann; 5s release ann", "0s acquire ann; 5s release+failed ann", "0s acquire ann; 60s acquire bob", "0s takeover opal",
	"0s acquire ann; 5s takeover opal", "0s acquire ann; 5s reserve:bob opal", "0s reserve:bob opal; 5s acquire bob", "0s acquire ann; 5s revoke opal",
	"0s acquire ann; 5s revoke opal; 6s acquire bob", "0s acquire ann; 90s renew+resume ann",
	"0s acquire ann; 5s checkpoint ann; 60s acquire bob",
}

// TestRecordsSurviveJSON: a record that is written and read back is the same.
func TestRecordsSurviveJSON(t *testing.T) {
	for _, story := range stories {
		rec := play(t, story)
		text, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		var back tenure.Record
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, rec) {
			t.Errorf("%s: %v\nread\n%+v, want\n%+v", story, err, back, rec)
		}
		if strings.Contains(string(text), string(secretOf("ann"))) {
			t.Errorf("%s: the secret is stored: %s", story, text)
		}
	}
}

// TestTheLongestRecordIsRead: every list is as long as the law makes it, and
// the texts contain commas and quotes. With one element more Check refuses the
// record, and with many more UnmarshalJSON does.
func TestTheLongestRecordIsRead(t *testing.T) {
	text := `a,b],{"c\\",`
	rec := tenure.Record{}
	for n := range 2 * tenure.HistoryLen {
		q := ask("takeover", "opal")
		q.Secret, q.Note = tenure.NewSecret(), text+strings.Repeat(`"`, tenure.MaxText-len(text))
		for range tenure.MaxGuards {
			q.Guards = append(q.Guards, text)
		}
		rec = must(t, rec, q, after(time.Duration(n)*time.Second))
	}
	if len(rec.History) != tenure.HistoryLen || len(rec.Guards) != tenure.MaxGuards {
		t.Fatalf("%d terms and %d guards", len(rec.History), len(rec.Guards))
	}
	for what, more := range map[string]func(*tenure.Record){
		"":             func(*tenure.Record) {},
		"at most 1024": func(r *tenure.Record) { r.Guards = slices.Repeat([]string{text}, 1024) },
		"33 transfers": func(r *tenure.Record) {
			r.History = append(r.History[:tenure.HistoryLen:tenure.HistoryLen], tenure.Term{})
		},
		"17 guards": func(r *tenure.Record) { r.Guards = append(r.Guards[:tenure.MaxGuards:tenure.MaxGuards], text) },
	} {
		long := rec
		more(&long)
		data, err := json.Marshal(long)
		if err != nil {
			t.Fatal(err)
		}
		var back tenure.Record
		err = json.Unmarshal(data, &back)
		if err == nil {
			err = back.Check()
		}
		switch {
		case what == "" && (err != nil || !reflect.DeepEqual(back, rec)):
			t.Errorf("%v\nread\n%+v, want\n%+v", err, back, rec)
		case what != "" && (err == nil || !strings.Contains(err.Error(), what)):
			t.Errorf("%v, want it to say %q", err, what)
		}
	}
}

// TestTheFormOfRecords: other programs read these names, times, durations and
// numbers.
func TestTheFormOfRecords(t *testing.T) {
	q := ask("acquire", "ann")
	q.Guards, q.Every, q.HoldFor, q.TTL = []string{"/srv/out"}, 24*time.Hour, time.Hour, 90*time.Second
	rec := must(t, tenure.Record{}, q, noon.Add(1500*time.Microsecond))
	rec = must(t, rec, ask("report", "ann"), after(time.Second))
	got, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "key": "reports/daily",
 "token": 1772366400001500,
 "grant": "` + string(secretOf("ann").Grant()) + `",
 "owner": "ann",
 "instance": "ann#1",
 "state": "held",
 "cause": "first",
 "acquired": "2026-03-01T12:00:00.0015Z",
 "renewed": "2026-03-01T12:00:00.0015Z",
 "deadline": "2026-03-01T12:01:30.0015Z",
 "hold_until": "2026-03-01T13:00:00.0015Z",
 "guards": [
  "/srv/out"
 ],
 "progress": "step 1 of ann",
 "progress_at": "2026-03-01T12:00:01Z",
 "terms": 1,
 "history": [
  {
   "token": 1772366400001500,
   "grant": "` + string(secretOf("ann").Grant()) + `",
   "owner": "ann",
   "instance": "ann#1",
   "state": "held",
   "cause": "first",
   "acquired": "2026-03-01T12:00:00.0015Z"
  }
 ],
 "ttl": "1m30s",
 "every": "24h0m0s"
}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDamagedJSONIsAnError: and the receiver stays as it was.
func TestDamagedJSONIsAnError(t *testing.T) {
	rec := play(t, "0s acquire+daily ann")
	good, _ := json.Marshal(rec)
	for _, change := range [][2]string{
		{`"ttl":"1m0s"`, `"ttl":"a minute"`},
		{`"ttl":"1m0s"`, `"ttl":60`},
		{`"ttl":"1m0s"`, `"x":1`},
		{`"every":"24h0m0s"`, `"every":"daily"`},
		{`"terms":1`, `"terms":"one"`},
		{`2026-03-01T12:01:00Z`, `yesterday`},
		{`}]`, ``},
		{`{`, ``},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if bad == string(good) {
			t.Fatalf("%q is not in %s", change[0], good)
		}
		read := rec
		if err := json.Unmarshal([]byte(bad), &read); err == nil || !reflect.DeepEqual(read, rec) {
			t.Errorf("%s: %v, and the record is %+v", bad, err, read)
		}
	}
}

// TestCheckNamesDamage: Check finds damage in every field that a decision could
// rest on.
func TestCheckNamesDamage(t *testing.T) {
	for _, story := range stories {
		if err := play(t, story).Check(); err != nil {
			t.Errorf("%s: %v", story, err)
		}
	}
	longest := ask("acquire", "ann")
	longest.TTL, longest.Every, longest.HoldFor = tenure.MaxTTL, tenure.MaxPeriod, tenure.MaxPeriod
	must(t, tenure.Record{}, longest, noon)
	const held, released = "0s acquire zoe; 60s acquire ann", "0s acquire+daily ann; 5s release ann"
	for _, c := range []struct {
		story string
		spoil func(*tenure.Record)
		want  string
	}{
		{held, func(r *tenure.Record) { *r = tenure.Record{} }, "key: it is empty"},
		{held, func(r *tenure.Record) { r.Key = "a//b" }, "empty segment"},
		{held, func(r *tenure.Record) { r.Token = 0 }, "token 0"},
		{held, func(r *tenure.Record) { r.Token = fence.MaxToken + 1 }, "token 9007199254740992"},
		{held, func(r *tenure.Record) { r.Token++ }, "does not end with its own grant"},
		{held, func(r *tenure.Record) { r.Grant = "x" }, `grant "x"`},
		{held, func(r *tenure.Record) { r.Grant = secretOf("eve").Grant() }, "does not end with its own grant"},
		{held, func(r *tenure.Record) { r.State = "" }, `state ""`},
		{held, func(r *tenure.Record) { r.State = "HELD" }, `state "HELD"`},
		{held, func(r *tenure.Record) { r.State = tenure.Free }, `it is free and ended ""`},
		{held, func(r *tenure.Record) { r.Ended = tenure.EndReleased }, `it is held and ended "released"`},
		{released, func(r *tenure.Record) { r.State = tenure.Held }, `it is held and ended "released"`},
		{released, func(r *tenure.Record) { r.Ended = tenure.EndExpired }, `it is free and ended "expired"`},
		{released, func(r *tenure.Record) { r.Ended = tenure.EndFailed }, "does not end with its own grant"},
		{held, func(r *tenure.Record) { r.Cause = "" }, "does not end with its own grant"},
		{held, func(r *tenure.Record) { r.Cause, r.History[1].Cause = "", "" }, `has the cause ""`},
		{held, func(r *tenure.Record) { r.History[0].Cause = "luck" }, `has the cause "luck"`},
		{held, func(r *tenure.Record) { r.Acquired = time.Time{} }, "a time is missing"},
		{held, func(r *tenure.Record) { r.Renewed = time.Time{} }, "a time is missing"},
		{held, func(r *tenure.Record) { r.Deadline = time.Time{} }, "a time is missing"},
		{held, func(r *tenure.Record) { r.TTL = 0 }, "TTL 0s"},
		{held, func(r *tenure.Record) { r.TTL = -time.Minute }, "TTL -1m0s"},
		{held, func(r *tenure.Record) { r.TTL = tenure.MaxTTL + 1 }, "TTL 720h"},
		{released, func(r *tenure.Record) { r.Every = -1 }, "period -1ns"},
		{released, func(r *tenure.Record) { r.Every = tenure.MaxPeriod + 1 }, "period 8784h"},
		{released, func(r *tenure.Record) { r.Succeeded = time.UnixMicro(int64(fence.MaxToken) + 1) }, "success at 2255"},
		{released, func(r *tenure.Record) { r.Grid = time.Time{}.Add(-1) }, "on the grid of 0000-12-31"},
		{held, func(r *tenure.Record) { r.History = nil }, "0 transfers"},
		{held, func(r *tenure.Record) { r.History = make([]tenure.Term, tenure.HistoryLen+1) }, "33 transfers"},
		{held, func(r *tenure.Record) { r.History = r.History[:1] }, "does not end with its own grant"},
		{held, func(r *tenure.Record) { r.History[0].Token = r.Token }, "comes after"},
		{held, func(r *tenure.Record) { r.History[0].Token = 0 }, "token 0 comes after 0"},
		{held, func(r *tenure.Record) { r.History[0].Ended = "" }, `ended "" in its history`},
		{held, func(r *tenure.Record) { r.History[0].Ended = "lost" }, `ended "lost" in its history`},
		{held, func(r *tenure.Record) { r.Guards = make([]string, tenure.MaxGuards+1) }, "17 guards"},
		{held, func(r *tenure.Record) { r.Guards = []string{strings.Repeat("x", tenure.MaxText+1)} }, "one that is too long"},
		{held, func(r *tenure.Record) { r.Progress = strings.Repeat("x", tenure.MaxText+1) }, "a progress marker of 1025 bytes"},
		{held, func(r *tenure.Record) { r.Checkpoint = strings.Repeat("x", tenure.MaxCheckpoint+1) }, "a checkpoint of 1025 bytes"},
		{held, func(r *tenure.Record) { r.Owner = strings.Repeat("x", tenure.MaxName+1) }, "longer than any request"},
		{held, func(r *tenure.Record) { r.History[0].State = tenure.State(strings.Repeat("x", tenure.MaxName+1)) }, "longer than any request"},
		{held, func(r *tenure.Record) { r.History[0].Grant = fence.Grant(strings.Repeat("x", tenure.MaxName+1)) }, "longer than any request"},
		{held, func(r *tenure.Record) { r.History[0].Note = strings.Repeat("x", tenure.MaxText+1) }, "longer than any request"},
	} {
		rec := play(t, c.story)
		c.spoil(&rec)
		if err := rec.Check(); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.story, err, c.want)
		}
	}
}

// FuzzRecordJSON: the law can be applied to every record that is read and
// passes Check. The result can be written and read, and passes Check again.
func FuzzRecordJSON(f *testing.F) {
	for i, story := range stories {
		text, _ := json.Marshal(play(f, story))
		f.Add(text, uint8(i), int64(i)*1_000_000)
	}
	f.Add([]byte(`{"key":"k","ttl":"1m0s","history":[]}`), uint8(0), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, choice uint8, micros int64) {
		var rec tenure.Record
		if json.Unmarshal(text, &rec) != nil || rec.Check() != nil {
			return
		}
		written, err := json.Marshal(rec)
		if err != nil {
			t.Fatalf("read and not written: %v\n%s", err, text)
		}
		var again tenure.Record
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("written and not read: %v\n%s", err, written)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(rewritten, written) {
			t.Fatalf("written, read and written again:\n%s\n%s", written, rewritten)
		}
		verbs := []string{"acquire", "renew", "renew+resume", "report", "release", "release+failed", "takeover", "reserve:eve", "revoke", "acquire+daily", "acquire+hold"}
		q := ask(verbs[int(choice)%len(verbs)], []string{"ann", "bob", "eve"}[int(choice)/len(verbs)%3])
		q.Key = rec.Key
		before := clone(rec)
		next, _, err := tenure.Apply(rec, q, rec.Deadline.Add(time.Duration(micros)*time.Microsecond))
		if !reflect.DeepEqual(rec, before) {
			t.Errorf("%s changed what it was given", q.Verb)
		}
		if err != nil && !reflect.DeepEqual(next, before) {
			t.Errorf("%s was refused (%v) and changed the record", q.Verb, err)
		}
		if err := next.Check(); err != nil {
			t.Errorf("%s made a damaged record: %v\nof %s", q.Verb, err, text)
		}
		if _, err := json.Marshal(next); err != nil {
			t.Errorf("%s made a record that cannot be written: %v", q.Verb, err)
		}
	})
}
