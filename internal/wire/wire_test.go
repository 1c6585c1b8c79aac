package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 1500, time.UTC)

// words are texts that an encoder may get wrong.
var words = rapid.SampledFrom([]string{
	"", "ann", `a"b\c`, "é\u2028\u2029", "日本🙂", "<&>", "\ufffd", "a/b c", "null", strings.Repeat("é", 128),
})

// spans are durations of every grain.
var spans = rapid.Custom(func(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(400*24*time.Hour)).Draw(t, "span"))
})

var anyRequest = rapid.Custom(func(t *rapid.T) tenure.Request {
	return tenure.Request{
		Verb: rapid.SampledFrom([]tenure.Verb{
			tenure.Acquire, tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release, tenure.Takeover,
			tenure.Reserve, tenure.Revoke,
		}).Draw(t, "verb"),
		Key: rapid.SampledFrom([]string{"a", "a/b c", "é/日本"}).Draw(t, "key"),
		// Few secrets, so that requests meet their own grants.
		Secret: tenure.Secret(fmt.Sprintf("%032x", rapid.IntRange(0, 5).Draw(t, "secret"))),
		Owner:  words.Draw(t, "owner"), Instance: words.Draw(t, "instance"), TTL: spans.Draw(t, "ttl"),
		Above: fence.Token(rapid.Int64Range(0, int64(tenure.MaxAbove)).Draw(t, "above")),
		Every: spans.Draw(t, "every"), HoldFor: spans.Draw(t, "hold"),
		Guards: rapid.SliceOfN(words, 0, 4).Draw(t, "guards"), Resume: rapid.Bool().Draw(t, "resume"),
		Progress: words.Draw(t, "progress"), Checkpoint: string(rapid.SliceOf(rapid.Byte()).Draw(t, "checkpoint")),
		Failed: rapid.Bool().Draw(t, "failed"), Actor: words.Draw(t, "actor"), Note: words.Draw(t, "note"),
	}
})

// TestRequestsAreReadAsTheyWereWritten: no field is lost or changed, in any
// number of bodies.
func TestRequestsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(anyRequest, 1, 8).Draw(t, "requests")
		bodies, sizes := Batches(requests)
		var got []tenure.Request
		for i, body := range bodies {
			some, err := ReadBatch(body)
			if err != nil || len(some) != sizes[i] {
				t.Fatalf("body %d: %v; %d requests, want %d\n%s", i, err, len(some), sizes[i], body)
			}
			got = append(got, some...)
		}
		for i := range requests {
			if len(requests[i].Guards) == 0 {
				requests[i].Guards = nil
			}
		}
		if !reflect.DeepEqual(got, requests) {
			t.Fatalf("read\n%+v, want\n%+v", got, requests)
		}
	})
}

// TestBodiesKeepToTheirBounds: many requests, and long ones, are spread over
// several bodies in their order.
func TestBodiesKeepToTheirBounds(t *testing.T) {
	long := tenure.Request{Verb: tenure.Acquire, Key: "a/b", Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	for range tenure.MaxGuards {
		long.Guards = append(long.Guards, strings.Repeat(`"`, tenure.MaxText))
	}
	short := tenure.Request{Verb: tenure.Renew, Key: strings.Repeat("k", fence.MaxKey), Secret: tenure.NewSecret()}
	for what, requests := range map[string][]tenure.Request{
		"none": nil, "many": repeat(short, 3*MaxBatch+1), "long": repeat(long, 100),
	} {
		bodies, sizes := Batches(requests)
		n := 0
		for i, body := range bodies {
			some, err := ReadBatch(body)
			if err != nil || len(body) > MaxBody || len(some) != sizes[i] {
				t.Errorf("%s: %v; %d bytes, %d requests", what, err, len(body), len(some))
			}
			n += len(some)
		}
		if n != len(requests) {
			t.Errorf("%s: %d of %d requests", what, n, len(requests))
		}
	}
	if _, sizes := Batches(repeat(short, 1000)); len(sizes) != 1 {
		t.Errorf("a thousand renewals take %d calls, want one", len(sizes))
	}
}

func repeat(q tenure.Request, n int) (all []tenure.Request) {
	for range n {
		all = append(all, q)
	}
	return all
}

// TestAnswersAreReadAsTheyWereWritten plays random requests. The client makes
// the law's own errors again, with all facts.
func TestAnswersAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rec tenure.Record
		var requests []tenure.Request
		var answers []store.Answer
		now := noon
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			q := anyRequest.Draw(t, "request")
			q.Key = "a/b"
			now = tenure.Time(now.Add(spans.Draw(t, "pause") / 1000))
			next, _, err := tenure.Apply(rec, q, now)
			requests, answers = append(requests, q), append(answers, store.Answer{Record: next, Now: now, Err: err})
			rec = next
		}
		got, err := ReadAnswers(Answers(answers, nil), requests)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range answers {
			sameError(t, got[i].Err, want.Err)
			if want.Err == nil {
				want.Record.History = nil
			}
			if !reflect.DeepEqual(plainRecord(got[i].Record), plainRecord(want.Record)) || !got[i].Now.Equal(want.Now) {
				t.Fatalf("answer %d: read\n%+v, want\n%+v", i, got[i], want)
			}
		}
	})
}

// plainRecord makes empty lists equal to none.
func plainRecord(rec tenure.Record) tenure.Record {
	if len(rec.Guards) == 0 {
		rec.Guards = nil
	}
	return rec
}

type fatal interface{ Fatalf(string, ...any) }

// sameError compares what a caller can tell of two errors.
func sameError(t fatal, got, want error) {
	for _, match := range []error{tenure.ErrHeld, tenure.ErrNotOwned, fence.ErrInvalid, store.ErrUnknown} {
		if errors.Is(got, match) != errors.Is(want, match) {
			t.Fatalf("read %v, want %v", got, want)
		}
	}
	if store.IsFault(got) != store.IsFault(want) {
		t.Fatalf("read %v, want %v: one is a fault", got, want)
	}
	var held, wantHeld *tenure.HeldError
	if errors.As(want, &wantHeld) && (!errors.As(got, &held) || got.Error() != want.Error()) {
		t.Fatalf("read %v, want %v", got, want)
	}
	if held != nil {
		a, b := *held, *wantHeld
		a.Record, b.Record = plainRecord(a.Record), plainRecord(b.Record)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("read %+v, want %+v", a, b)
		}
	}
	var lost, wantLost *tenure.NotOwnedError
	if errors.As(want, &wantLost) && (!errors.As(got, &lost) || got.Error() != want.Error()) {
		t.Fatalf("read %v, want %v", got, want)
	}
	if lost != nil {
		a, b := *lost, *wantLost
		a.Record, b.Record = plainRecord(a.Record), plainRecord(b.Record)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("read %+v, want %+v", a, b)
		}
	}
}

// TestFaultsAndUnknownOutcomesStayApart: the client may give up after a fault,
// and must not after an unknown outcome. Neither tells the inside of the
// server.
func TestFaultsAndUnknownOutcomesStayApart(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for what, err := range map[string]error{
		"unknown":          store.Unknown(errors.New("postgres://inside did not answer")),
		"a fault":          store.Unreachable(refused),
		"a fault in doubt": &store.UnknownError{Err: store.Fault(refused)},
		"another error":    store.Unknown(errors.New("inside broke")),
	} {
		p := ProblemOf(err)
		back, readErr := ReadProblem(p.Bytes())
		if readErr != nil {
			t.Fatal(readErr)
		}
		sameError(t, back.Err(), err)
		if strings.Contains(p.Detail, "inside") || strings.Contains(p.Detail, "tcp") {
			t.Errorf("%s: the client is told %q", what, p.Detail)
		}
	}
	for _, code := range []Code{NotFound, NotAllowed, Unauthenticated} {
		if err := NewProblem(code, "no").Err(); !store.IsFault(err) {
			t.Errorf("%s: %v is no fault, so a client would go on asking", code, err)
		}
	}
	if err := NewProblem(Busy, "no").Err(); !errors.Is(err, store.ErrUnknown) || store.IsFault(err) {
		t.Errorf("busy: %v; want unknown, to be asked again", err)
	}
}

// TestARequestIsReadStrictly: the error names the place.
func TestARequestIsReadStrictly(t *testing.T) {
	for body, want := range map[string]string{
		``:                              "body: ",
		`[]`:                            "body: it must be an object",
		`null`:                          "body: it must be an object",
		`{"requests":[]} {}`:            "body: ",
		`{"requests":[]}x`:              "body: ",
		`{"requests":[],"requests":[]}`: "requests: it is given twice",
		`{"requests":[],"Requests":[]}`: `"Requests": there is no such member`,
		`{"requests":null}`:             "requests: it must be a list",
		`{"requests":[{"verb":"renew"},{"kex":1}]}`:                                  "requests[1].kex: there is no such member",
		`{"requests":[{"key":"a","key":"b"}]}`:                                       "requests[0].key: it is given twice",
		`{"requests":[{"key":"a","\u006bey":"b"}]}`:                                  "requests[0].key: it is given twice",
		`{"requests":[{"key":null}]}`:                                                "requests[0].key: it must be a string",
		`{"requests":[{"above":1.0}]}`:                                               "requests[0].above: it must be a whole number",
		`{"requests":[{"above":1e3}]}`:                                               "requests[0].above: it must be a whole number",
		`{"requests":[{"above":"1"}]}`:                                               "requests[0].above: it must be a number",
		`{"requests":[{"above":99999999999999999999}]}`:                              "requests[0].above: it must be a whole number",
		`{"requests":[{"ttl":60}]}`:                                                  "requests[0].ttl: it must be a string",
		`{"requests":[{"ttl":"1 minute"}]}`:                                          "requests[0].ttl: ",
		`{"requests":[{"resume":"yes"}]}`:                                            "requests[0].resume: it must be true or false",
		`{"requests":[{"checkpoint":"a"}]}`:                                          "requests[0].checkpoint: it is not in base64",
		`{"requests":[{"guards":{"a":1}}]}`:                                          "requests[0].guards: it must be a list",
		`{"requests":[{"guards":["a",7]}]}`:                                          "requests[0].guards[1]: it must be a string",
		`{"requests":[{"guards":[` + strings.Repeat(`"",`, 64) + `""]}]}`:            "requests[0].guards: it has more than 64 elements",
		`{"requests":[{"owner":"\ud800"}]}`:                                          "half of a surrogate pair",
		`{"requests":[{"owner":"\ud83d\u0041"}]}`:                                    "half of a surrogate pair",
		`{"requests":[{"owner":"\ude00"}]}`:                                          "half of a surrogate pair",
		"{\"requests\":[{\"owner\":\"\xff\"}]}":                                      "not valid UTF-8",
		`{"requests":[` + strings.Repeat(`{},`, MaxBatch) + `{}]}`:                   "requests: it has more than 1024 elements",
		strings.Repeat(`{"requests":[`, 20000):                                       "body: ",
		`{"requests":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}`: "requests[0]: it must be an object",
	} {
		if _, err := ReadBatch([]byte(body)); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want invalid and %q", body, err, want)
		}
	}
	for _, body := range []string{
		`{"requests":[]}`, ` {"requests" : [ {} ] } `, `{"requests":[{"owner":"\ud83d\ude00 \\ud800 \u00e9"}]}`, `{}`,
	} {
		if _, err := ReadBatch([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestACallNamesVerbAndKeyInItsPathAlone: its body cannot name others.
func TestACallNamesVerbAndKeyInItsPathAlone(t *testing.T) {
	q, wait, err := ReadCall([]byte(`{"secret":"s","ttl":"1m","wait":"30s"}`), tenure.Acquire, "a/b")
	if err != nil || q.Key != "a/b" || q.Verb != tenure.Acquire || q.TTL != time.Minute || wait != 30*time.Second {
		t.Errorf("%+v, wait %s, %v", q, wait, err)
	}
	for verb, body := range map[tenure.Verb]string{
		tenure.Acquire: `{"key":"c"}`, tenure.Renew: `{"verb":"revoke"}`, tenure.Release: `{"wait":"1s"}`,
	} {
		if _, _, err := ReadCall([]byte(body), verb, "a/b"); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", body, err)
		}
	}
}

// TestANewerServerMaySayMore: a client skips members that it does not know. It
// refuses answers that contradict themselves, or the requests.
func TestANewerServerMaySayMore(t *testing.T) {
	requests := []tenure.Request{{Key: "a/b"}}
	rec := `{"key":"a/b","token":7,"more":{"deep":[1,{}]},"ttl":"1m0s"}`
	answers, err := ReadAnswers([]byte(`{"new":[],"answers":[{"record":`+rec+`,"also":null}]}`), requests)
	if err != nil || answers[0].Record.Token != 7 || answers[0].Record.TTL != time.Minute {
		t.Errorf("%+v, %v", answers, err)
	}
	for _, body := range []string{
		`{"answers":[]}`, `{"answers":[{},{}]}`, `{"answers":[{}]}`, `{"answers":[{"record":{}}]}`,
		`{"answers":[{"record":{"key":"a/c"}}]}`, `{"answers":[{"error":{}}]}`, `{"answers":[{"error":{"code":"new"}}]}`,
		`{"answers":[{"record":{"key":"a/b","token":1,"token":2}}]}`,
		`{"answers":[{"record":` + rec + `,"signature":"none"}]}`, `{"answers":[{"record":` + rec + `,"signature":7}]}`,
		`{"answers":[{"record":{"key":"a/b","history":[` + strings.Repeat(`{},`, 40) + `{}]}}]}`,
	} {
		if _, err := ReadAnswers([]byte(body), requests); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", body, err)
		}
	}
}

// TestTheLargestAnswersFit: the longest records that the law makes, all of them
// in refusals, keep to the bound of the client.
func TestTheLargestAnswersFit(t *testing.T) {
	var rec tenure.Record
	text := strings.Repeat(`"`, tenure.MaxText)
	for n := range tenure.HistoryLen {
		q := tenure.Request{
			Verb: tenure.Takeover, Key: "a/b", Secret: tenure.NewSecret(), Owner: text[:tenure.MaxName],
			Instance: text[:tenure.MaxName], Actor: text[:tenure.MaxName], Note: text, TTL: time.Minute,
		}
		for range tenure.MaxGuards {
			q.Guards = append(q.Guards, text)
		}
		var err error
		if rec, _, err = tenure.Apply(rec, q, noon.Add(time.Duration(n)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	var answers []store.Answer
	var requests []tenure.Request
	for range MaxBatch {
		answers = append(answers, store.Answer{Record: rec, Now: noon, Err: &tenure.HeldError{Record: rec, Why: tenure.WhyHeld}})
		requests = append(requests, tenure.Request{Key: rec.Key})
	}
	body := Answers(answers, nil)
	if len(body) > MaxAnswer {
		t.Fatalf("%d bytes, more than %d", len(body), MaxAnswer)
	}
	const some = 40 // enough for some that come without their history
	got, err := ReadAnswers(Answers(answers[:some], nil), requests[:some])
	if err != nil || !errors.Is(got[some-1].Err, tenure.ErrHeld) || len(got[0].Record.History) != tenure.HistoryLen ||
		len(got[some-1].Record.History) != 0 {
		t.Fatalf("%v; the last is answered %v", err, got[some-1].Err)
	}
}

// FuzzReadBatch: no body makes the reader panic. It reads the same requests as
// encoding/json does, and writes and reads them again without a change.
func FuzzReadBatch(f *testing.F) {
	for _, seed := range []string{
		`{"requests":[]}`, `{"requests":[{"verb":"acquire","key":"a/b","secret":"0","owner":"ann","ttl":"1m0s","above":7}]}`,
		`{"requests":[{"verb":"renew","resume":true,"guards":["a","b"],"checkpoint":"aGk="}]}`, `{"requests":[{"owner":"\ud83d\ude00"}]}`,
		`{"requests":[{"key":"a","key":"b"}]}`, `{"requests":[{"Key":"a"}]}`, `{"requests":[{"owner":"\ud800"}]}`, `{"requests":[{}]} x`, `{"requests":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		requests, err := ReadBatch(body)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) {
				t.Fatalf("%v does not match invalid", err)
			}
			return
		}
		var plain struct {
			Requests []struct {
				Verb, Key, Owner, Note string
				Above                  fence.Token
			}
		}
		if err := json.Unmarshal(body, &plain); err != nil || len(plain.Requests) != len(requests) {
			t.Fatalf("encoding/json reads %d requests and says %v; we read %d", len(plain.Requests), err, len(requests))
		}
		for i, q := range requests {
			p := plain.Requests[i]
			if string(q.Verb) != p.Verb || q.Key != p.Key || q.Owner != p.Owner || q.Note != p.Note || q.Above != p.Above {
				t.Fatalf("request %d: read %+v, encoding/json %+v", i, q, p)
			}
		}
		var again []tenure.Request
		bodies, _ := Batches(requests)
		for _, b := range bodies {
			some, err := ReadBatch(b)
			if err != nil && len(b) <= MaxBody {
				t.Fatalf("our own: %v\n%s", err, b)
			}
			again = append(again, some...)
		}
		for i := range requests {
			if len(requests[i].Guards) == 0 {
				requests[i].Guards = nil
			}
		}
		if len(requests) > 0 && len(body) < MaxBody/8 && !reflect.DeepEqual(again, requests) {
			t.Fatalf("read again\n%+v, want\n%+v", again, requests)
		}
	})
}

// FuzzReadAnswers: no answer of a server makes a client panic.
func FuzzReadAnswers(f *testing.F) {
	rec := tenure.Record{Key: "a/b", Token: 7, Acquired: noon, TTL: time.Minute, History: []tenure.Term{{Token: 7}}}
	held := &tenure.HeldError{Record: rec, Why: tenure.WhyHeld, Until: noon, Now: noon}
	lost := &tenure.NotOwnedError{Record: rec, Why: tenure.WhyTakenOver, Now: noon}
	for _, a := range []store.Answer{
		{Record: rec, Now: noon, Awaited: true},
		{Record: rec, Now: noon, Err: held},
		{Record: rec, Err: lost},
		{Err: store.Unknown(errors.New("x"))},
		{Err: fence.ErrInvalid},
	} {
		f.Add(Answers([]store.Answer{a}, nil))
	}
	requests := []tenure.Request{{Key: "a/b"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		answers, err := ReadAnswers(body, requests)
		if err == nil && len(answers) != 1 {
			t.Fatalf("%d answers to one request", len(answers))
		}
		for _, a := range answers {
			if a.Err != nil {
				_ = a.Err.Error()
			}
		}
		_, _ = ReadRecord(body)
		_, _ = ReadProblem(body)
	})
}
