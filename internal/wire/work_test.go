package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// data are bytes that an encoder may get wrong. Nil and empty are the same.
var data = rapid.Custom(func(t *rapid.T) []byte {
	if b := rapid.SliceOf(rapid.Byte()).Draw(t, "data"); len(b) > 0 {
		return b
	}
	return nil
})

// times are times of every grain, or none.
var times = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "none") {
		return time.Time{}
	}
	return noon.Add(spans.Draw(t, "after"))
})

var anyWork = rapid.Custom(func(t *rapid.T) work.Request {
	q := work.Request{
		Verb: rapid.SampledFrom(work.Verbs).Draw(t, "verb"), ID: work.ID(fmt.Sprintf("%032x", rapid.Int().Draw(t, "id")&0xff)),
		Token: fence.Token(rapid.Int64Range(0, int64(fence.MaxToken)).Draw(t, "token")), Secret: tenure.NewSecret(),
		Queue: words.Draw(t, "queue"), Unique: words.Draw(t, "unique"), Partition: words.Draw(t, "partition"), Payload: data.Draw(t, "payload"),
		Priority: rapid.IntRange(-work.MaxPriority, work.MaxPriority).Draw(t, "priority"), Limit: rapid.IntRange(0, 9).Draw(t, "limit"),
		NotBefore: times.Draw(t, "not before"), Delay: spans.Draw(t, "delay"), TTL: spans.Draw(t, "ttl"),
		Progress: words.Draw(t, "progress"), State: data.Draw(t, "state"), Result: data.Draw(t, "result"),
		Error: words.Draw(t, "error"), Final: rapid.Bool().Draw(t, "final"), Owner: words.Draw(t, "owner"),
		Instance: words.Draw(t, "instance"), Actor: words.Draw(t, "actor"), Note: words.Draw(t, "note"), Again: rapid.Bool().Draw(t, "again"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "guards") {
		q.Guards = append(q.Guards, words.Draw(t, "guard"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "effects") {
		q.Effects = append(q.Effects, work.Emission{
			Name: words.Draw(t, "name"), To: words.Draw(t, "to"), Body: data.Draw(t, "body"), AtMostOnce: rapid.Bool().Draw(t, "once"),
		})
	}
	return q
})

// TestWorkRequestsAreReadAsTheyWereWritten: no field is lost or changed.
func TestWorkRequestsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(anyWork, 1, 4).Draw(t, "requests")
		bodies, sizes := WorkBatches(requests)
		var got []work.Request
		for i, body := range bodies {
			some, err := ReadWorkBatch(body)
			if err != nil || len(some) != sizes[i] {
				t.Fatalf("body %d: %v; %d requests, want %d\n%s", i, err, len(some), sizes[i], body)
			}
			got = append(got, some...)
		}
		if !reflect.DeepEqual(got, requests) {
			t.Fatalf("read\n%+v, want\n%+v", got, requests)
		}
	})
}

// TestClaimsAndTheRestAreReadAsTheyWereWritten does the same for the calls that
// are no requests.
func TestClaimsAndTheRestAreReadAsTheyWereWritten(t *testing.T) {
	stamp := fence.Stamp{Key: "work/dispatch", Token: 7, Grant: tenure.NewSecret().Grant()}
	c := work.Claim{Queues: []string{"a", "é/b"}, Limit: 3, Secret: tenure.NewSecret(), Owner: "ann", Instance: "i", TTL: time.Minute, Again: true}
	if got, wait, err := ReadClaim(Claim(c)); err != nil || wait != 0 || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %s, %v", got, wait, err)
	}
	q := work.Taking{Stamp: stamp, To: []string{"mail"}, Ordered: true, Limit: 2, Hold: time.Minute}
	if got, err := ReadTaking(Taking(q)); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v", got, err)
	}
	effect := work.EffectID{Item: work.NewID(), Name: "é:x/y", Generation: 2}
	settlements := []work.Settlement{
		{Effect: effect, Attempt: 3, State: work.Pending, Delay: time.Second, Error: "why\n", Stamp: stamp},
		{Effect: effect, Attempt: 3, State: work.Sent, Actor: "opal", Note: "seen"},
	}
	bodies, _ := SettleBatches(settlements)
	if got, err := ReadSettlements(bodies[0]); err != nil || !reflect.DeepEqual(got, settlements) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, keep := range []work.Retention{{}, {Done: work.Never, Dead: time.Hour, Refusals: time.Nanosecond}} {
		if got, limit, err := ReadPrune(Prune(keep, 5)); err != nil || limit != 5 || got != keep {
			t.Errorf("%+v, %d, %v", got, limit, err)
		}
	}
}

// longest is the largest request that a ledger takes.
func longest() work.Request {
	q := work.Request{
		Verb: work.Complete, ID: work.NewID(), Token: fence.MaxToken, Secret: tenure.NewSecret(),
		Result: bytes.Repeat([]byte{255}, work.MaxPayload),
	}
	for i := range work.MaxEffects {
		q.Effects = append(q.Effects, work.Emission{
			Name: strings.Repeat("é", work.MaxEffectName/2-2) + fmt.Sprint(i), To: strings.Repeat(`"`, work.MaxEffectName),
			Body: bytes.Repeat([]byte{255}, work.MaxBody),
		})
	}
	return q
}

// TestWorkBodiesKeepToTheirBounds: the largest request fits alone, and heavy
// requests are spread over several bodies in their order.
func TestWorkBodiesKeepToTheirBounds(t *testing.T) {
	long := longest()
	if err := long.Check(); err != nil {
		t.Fatal(err)
	}
	beat := work.Request{Verb: work.Heartbeat, ID: work.NewID(), Token: 1, Secret: tenure.NewSecret()}
	bodies, sizes := WorkBatches([]work.Request{beat, long, beat, beat})
	if fmt.Sprint(sizes) != "[1 1 2]" || len(bodies[1]) > MaxWorkBody || len(bodies[2]) > MaxBody {
		t.Errorf("bodies of %v requests, the largest of %d bytes", sizes, len(bodies[1]))
	}
	var heavy []work.Request
	for range 100 {
		done := beat
		done.Verb = work.Complete
		heavy = append(heavy, done)
	}
	if _, sizes := WorkBatches(heavy); fmt.Sprint(sizes) != "[64 36]" {
		t.Errorf("100 completions are sent as %v", sizes)
	}
}

// TestRefusalsOfALedgerComeBack as they were, with all facts.
func TestRefusalsOfALedgerComeBack(t *testing.T) {
	stamp := fence.Stamp{Key: "q/1", Token: 7, Grant: tenure.NewSecret().Grant(), Seq: 3}
	mark := fence.Mark{Key: "q/1", Token: 9, Grant: tenure.NewSecret().Grant()}
	for _, want := range []error{
		&fence.StaleError{Presented: stamp, Newest: mark, PresentedOwner: "ann", NewestOwner: "bob"},
		&fence.StaleError{Presented: fence.Stamp{Key: "q/1", Grant: stamp.Grant}, Newest: mark},
		&fence.RefusedError{Err: fence.ErrCollision, Presented: stamp, Mark: mark},
		&fence.RefusedError{Err: fence.ErrWrongKey, Presented: stamp, Mark: mark},
		&fence.RefusedError{Err: fence.ErrRepeated, Presented: stamp, Mark: mark},
		&work.StateError{What: "cancel", Of: "item x", State: "done", Why: "it is over"},
		&work.ConflictError{Queue: "q", Unique: "once", ID: work.NewID()},
		&work.ConflictError{ID: work.NewID()},
		&work.NotFoundError{What: "item x"},
	} {
		p, err := ReadProblem(ProblemOf(fmt.Errorf("in a ledger: %w", want)).Bytes())
		if err != nil {
			t.Errorf("%v: %v", want, err)
			continue
		}
		if got := p.LedgerErr(); !reflect.DeepEqual(got, want) {
			t.Errorf("%#v came back as %#v", want, got)
		}
	}
	ahead := fence.CheckAhead(fence.MaxToken, noon)
	p, err := ReadProblem(ProblemOf(ahead).Bytes())
	if got := p.LedgerErr(); err != nil || !errors.Is(got, fence.ErrAhead) || !errors.Is(got, fence.ErrInvalid) {
		t.Errorf("%v came back as %v, %v", ahead, got, err)
	}
	if got := (Problem{Code: NotFound, Detail: "nothing"}).Err(); !store.IsFault(got) || errors.Is(got, work.ErrNotFound) {
		t.Errorf("a hidden queue is %v", got)
	}
}

// TestItemsAndEffectsAreReadAsTheyWereWritten: all fields, in listings and
// alone.
func TestItemsAndEffectsAreReadAsTheyWereWritten(t *testing.T) {
	it := work.Item{
		ID: work.NewID(), Queue: "q/é", Unique: "u", Partition: "p", State: work.Running, Priority: -3, Ready: noon, Created: noon, Finished: noon,
		Attempts: 2, Limit: 5, Generation: 1, Guards: []string{"a", "b"}, Payload: []byte{0}, Checkpoint: []byte{1},
		CheckpointAt: noon, Result: []byte{2}, Error: "no\n",
		Record: tenure.Record{Key: "q/é/x", Token: 7, State: tenure.Held, Acquired: noon, Renewed: noon, Deadline: noon, TTL: time.Minute, Terms: 1},
	}
	e := work.Effect{
		EffectID: work.EffectID{Item: it.ID, Name: "x", Generation: 1}, Queue: "q", To: "mail", Body: []byte("b"), AtMostOnce: true,
		Token: 7, Grant: "g", Owner: "ann", State: work.Failed, Attempts: 3, Ready: noon, Sender: 9, Created: noon, Settled: noon,
		Error: "no", Actor: "opal", Note: "why",
	}
	r := work.Refusal{
		At: noon, Item: it.ID, Queue: "q", Verb: work.Complete, Why: "stale", Presented: 1, PresentedGrant: "a", PresentedOwner: "ann",
		Newest: 2, NewestGrant: "b", NewestOwner: "bob",
	}
	s := work.Stats{
		Queue: "q", Ready: 1, Scheduled: 2, Running: 3, Lapsed: 4, Done: 5, Dead: 6, Cancelled: 7, Oldest: noon, Heartbeat: noon,
		Progress: noon, Pending: 8, Sent: 9, Failed: 10, Unknown: 11, Refusals: 12,
	}
	same := func(what string, want, got any, err error) {
		t.Helper()
		if !reflect.DeepEqual(want, got) || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	alone, err := ReadItem(Item(it))
	same("an item", it, alone, err)
	line, err := ReadItemLine(Line(it))
	same("an item in a listing", it, line, err)
	effect, err := ReadEffectLine(Line(e))
	same("an effect", e, effect, err)
	refusal, err := ReadRefusalLine(Line(r))
	same("a refusal", r, refusal, err)
	stats, err := ReadStatsLine(Line(s))
	same("stats", s, stats, err)
	if _, err := ReadItemLine(LastWorkLine(ProblemOf(store.Unknown(errors.New("x"))))); !errors.Is(err, work.ErrUnknown) || errors.Is(err, ErrLine) {
		t.Errorf("the error of a listing: %v", err)
	}
	if _, err := ReadItemLine([]byte("<html>")); !errors.Is(err, work.ErrUnknown) || !errors.Is(err, ErrLine) {
		t.Errorf("a line of no server: %v", err)
	}
	key := signed.NewKey()
	claimed := it
	claimed.Record.Grant = tenure.NewSecret().Grant()
	claimed.Signature = key.Sign(claimed.Record.Stamp()).Signature
	body := ClaimedItems([]Claimed{{Item: claimed, Trimmed: true}})
	answer, err := ReadClaimed(body)
	same("a claimed item", []Claimed{{Item: claimed, Trimmed: true}}, answer, err)
	other := claimed.Record.Stamp()
	other.Token++
	body = bytes.Replace(body, []byte(claimed.Stamp().String()), []byte(key.Sign(other).String()), 1)
	if _, err := ReadClaimed(body); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an item with the stamp of another grant is read: %v", err)
	}
	// An item that was never claimed has the zero record.
	it.Record = tenure.Record{}
	alone, err = ReadItem(Item(it))
	same("an item without an owner", it, alone, err)
}

// TestLongResultsAreLeftOut: the answers to a batch keep to a bound, and the
// client asks again for each missing result.
func TestLongResultsAreLeftOut(t *testing.T) {
	var answers []work.Answer
	var requests []work.Request
	for range 3 {
		q := work.Request{Verb: work.Complete, ID: work.NewID(), Token: 7, Secret: tenure.NewSecret()}
		it := work.Item{ID: q.ID, Queue: "q", State: work.Done, Result: bytes.Repeat([]byte{1}, work.MaxPayload)}
		it.Record = tenure.Record{Key: it.Key(), Token: 7, Grant: q.Secret.Grant()}
		answers, requests = append(answers, work.Answer{Item: it, Repeated: true, Now: noon}), append(requests, q)
	}
	body := WorkAnswers(answers, nil)
	got, err := ReadWorkAnswers(body, requests)
	if err != nil || len(body) > 2*work.MaxPayload || got[0].Err != nil || len(got[0].Item.Result) != work.MaxPayload {
		t.Fatalf("%d bytes, %v; the first: %v", len(body), err, got[0].Err)
	}
	for _, a := range got[1:] {
		if !errors.Is(a.Err, work.ErrUnknown) || store.IsFault(a.Err) || !a.Item.IsZero() {
			t.Errorf("an answer that was left out: %v", a.Err)
		}
	}
}

// FuzzReadWork feeds the readers of requests, and those of answers. What is
// accepted is written and read as the same.
func FuzzReadWork(f *testing.F) {
	for _, seed := range []string{
		`{"requests":[{"verb":"add","id":"0","queue":"q","payload":"aGk=","guards":["a"],"not_before":"2026-03-01T12:00:00Z"}]}`,
		`{"requests":[{"verb":"complete","token":7,"effects":[{"name":"x","body":"aGk=","at_most_once":true}]}]}`,
		`{"requests":[{"effect":"x","attempt":1,"state":"sent"}]}`, `{"queues":["a"],"limit":1,"secret":"0","wait":"1s"}`,
		`{"stamp":"croft1:7:00000000000000000000000000000000:0:a","to":["a"],"limit":1,"hold":"1m"}`,
		`{"done":"1h","limit":1}`, `{"items":[{"id":"0","trimmed":true,"record":{"key":"a"}}]}`, `{"problem":{"code":"stale","presented":{"key":"a"}}}`,
		`{"answers":[{"item":{"id":"0"},"error":{"code":"state","what":"x"}}]}`, `{"effects":[{"item":"0","sender":7}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		requests, err := ReadWorkBatch(body)
		if err != nil && !errors.Is(err, fence.ErrInvalid) {
			t.Fatalf("%v does not match invalid", err)
		}
		for _, q := range requests {
			if err != nil || q.Verb == "" || q.ID == "" {
				continue
			}
			again, err := ReadWorkBatch([]byte(batchBegin + string(WorkRequest(q)) + batchEnd))
			if err != nil || len(again) != 1 || !bytes.Equal(WorkRequest(again[0]), WorkRequest(q)) {
				t.Fatalf("our own: %v\n%s", err, WorkRequest(q))
			}
		}
		_, _ = ReadWorkCall(body, work.Add, "0")
		_, _, _ = ReadClaim(body)
		_, _ = ReadTaking(body)
		_, _ = ReadSettlements(body)
		_, _, _ = ReadPrune(body)
		_, _ = ReadClaimed(body)
		_, _ = ReadItem(body)
		_, _ = ReadItemLine(body)
		_, _ = ReadEffectLine(body)
		_, _ = ReadRefusalLine(body)
		_, _ = ReadStatsLine(body)
		_, _ = ReadPruned(body)
		_, _ = ReadEffects(body, work.Taking{Limit: 1})
		answers, err := ReadWorkAnswers(body, []work.Request{{Verb: work.Add, ID: "0", Queue: "q"}})
		if err == nil && len(answers) != 1 {
			t.Fatalf("%d answers to one request", len(answers))
		}
		_, _ = ReadEffectAnswers(body, []work.Settlement{{}})
	})
}
