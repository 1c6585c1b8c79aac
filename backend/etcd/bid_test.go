package etcd

import (
	"reflect"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// TestABidComesBackAsItWas, alone and behind what the second in a queue is told; and what is not one is none.
func TestABidComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zé]{1,40}`)
		q := tenure.Request{
			Verb: tenure.Acquire, Key: "bid/" + text.Draw(t, "key"), Secret: tenure.NewSecret(), Owner: text.Draw(t, "owner"), Instance: text.Draw(t, "instance"),
			TTL:   time.Duration(rapid.Int64Range(10_000, 3_600_000_000).Draw(t, "ttl")) * time.Microsecond,
			Above: fence.Token(rapid.Int64Range(0, int64(tenure.MaxAbove)).Draw(t, "above")),
			Every: time.Duration(rapid.Int64Range(0, 3600).Draw(t, "every")) * time.Second, HoldFor: time.Duration(rapid.Int64Range(0, 3600).Draw(t, "hold")) * time.Second,
			Guards: rapid.SliceOfN(text, 0, tenure.MaxGuards).Draw(t, "guards"),
		}
		if len(q.Guards) == 0 {
			q.Guards = nil
		}
		b := &bid{Bid: q.Bid(), lease: 7, page: pageID{newIdentity(), 3}, slot: rapid.IntRange(0, pageSize-1).Draw(t, "slot"), mod: 9, since: 5}
		for _, before := range []string{"", beNext} {
			value := before + b.encode()
			read := func(store identity, value string) *bid {
				return decodeBid(q.Key, store, &mvccpb.KeyValue{Value: []byte(value), ModRevision: 9, CreateRevision: 5})
			}
			if got := read(b.page.store, value); !reflect.DeepEqual(got, b) {
				t.Fatalf("%+v came back as %+v", b, got)
			}
			if read(b.page.store+1, value) != nil {
				t.Fatal("it is taken for another store's")
			}
			if read(b.page.store, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")]) != nil {
				t.Fatal("half of it is taken for a bid")
			}
			if read(b.page.store, value+"\x00") != nil {
				t.Fatal("more than it is taken for a bid")
			}
		}
	})
}

// TestAgesAreUpperBounds: nothing is younger than it is said to be, and of what is older than all that was seen nothing is said.
func TestAgesAreUpperBounds(t *testing.T) {
	var a ages
	if _, known := a.of(5); known {
		t.Error("nothing was seen yet")
	}
	began := time.Now().Add(-time.Hour)
	for n := range 40 {
		a.note(began.Add(time.Duration(n)*time.Minute), int64(10*n))
		a.note(began.Add(time.Duration(n)*time.Minute+time.Millisecond), int64(10*n+1)) // too soon to be of use
	}
	a.note(began.Add(40*time.Minute), 5) // overtaken
	for revision, minute := range map[int64]int{391: 39, 390: 38, 385: 38, 381: 38, 380: 37, 1000: 39} {
		age, known := a.of(revision)
		if want := time.Since(began.Add(time.Duration(minute) * time.Minute)); !known || age > want+time.Second || age < want-time.Second {
			t.Errorf("revision %d is said to be %s old, %t; want %s", revision, age, known, want)
		}
	}
	if _, known := a.of(240); known {
		t.Error("all that is remembered came later")
	}
	a.forget()
	if _, known := a.of(391); known {
		t.Error("all was forgotten")
	}
}
