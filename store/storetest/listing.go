package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/croft-dev/croft/tenure"
)

func listing() []check {
	return []check{
		{"a prefix among thousands of keys", thousandsOfKeys},
		{"a prefix is bytes, not a pattern", prefixIsNoPattern},
		{"listings are ordered by the bytes of the key", orderedByBytes},
		{"a listing shows what Get shows", listedAsGot},
		{"a listing can be left early", leftEarly},
		{"a listing sees what was there all along, whatever else happens", listingMeanwhile},
	}
}

// fill acquires keys in large batches.
func (t *trial) fill(keys []string) {
	t.Helper()
	for part := range slices.Chunk(keys, 500) {
		requests := make([]tenure.Request, len(part))
		for i, key := range part {
			requests[i] = acquire(key, "ann")
		}
		for _, a := range t.apply(t.store, requests...) {
			if a.Err != nil {
				t.Fatalf("acquiring %d keys: %v", len(keys), a.Err)
			}
		}
	}
}

// lists makes sure that exactly these keys are listed, in order.
func (t *trial) lists(prefix string, want []string) {
	t.Helper()
	got := []string{}
	for _, rec := range t.list(t.store, prefix) {
		got = append(got, rec.Key)
	}
	want = slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("List(%q) yields %d keys, want %d; they differ at index %d: %q, want %q",
				prefix, len(got), len(want), i, keyAt(got, i), keyAt(want, i))
		}
	}
}

func keyAt(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

func under(prefix string, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

func thousandsOfKeys(t *trial) {
	n := t.many(3_000, 1_000, 1_000) // several pages in every store
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%d/job/%05d", i%7, i)
	}
	t.fill(keys)
	for _, prefix := range []string{
		"", "tenant-3/", "tenant-3/job/0001", "tenant", keys[n/2], // some keys
		keys[n/2] + "0", "Tenant", "job/", "tenant-3/job/9", // none
	} {
		t.lists(prefix, under(prefix, keys))
	}
}

func prefixIsNoPattern(t *trial) {
	var keys []string
	telling := map[string]bool{} // prefixes that a pattern would misread; all of them are tried
	for _, c := range []string{
		"%", "_", "*", "?", "[a]", "[", "\\", ".", "+", "^", "$", "(", ")", "{", "}", "|", "~", "a", "A", "é",
		"e\u0301",
	} {
		keys = append(keys, "list"+c+"x", "list"+c+"y/z", c+"/first")
		telling["list"+c] = true
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "./") })
	t.fill(keys)
	tried, others := map[string]bool{}, 0
	for _, key := range keys {
		for cut := range key + "." {
			prefix := key[:cut]
			if tried[prefix] {
				continue
			}
			tried[prefix] = true
			if others++; t.Slow && !telling[prefix] && others%8 != 0 {
				continue
			}
			t.lists(prefix, under(prefix, keys))
		}
	}
}

func orderedByBytes(t *trial) {
	keys := []string{
		"order/a", "order/B", "order/b", "order/A", "order/_", "order/-", "order/a b", "order/ab", "order/a-b",
		"order/aB", "order/a/b", "order/a.b", "order/a!",
		"order/10", "order/9", "order/é", "order/z", "order/ä", "order/Z", "order/日本", "order/🙂", "order/\uffee",
		"order",
		"order!", "order0", "Order/a",
	}
	t.fill(keys)
	t.lists("", keys)
	t.lists("order", under("order", keys))
	t.lists("order/", under("order/", keys))
}

func listedAsGot(t *trial) {
	held := acquire("listing/held", "ann")
	held.Guards = []string{"one", "two"}
	freed, expired := acquire("listing/free", "bob"), t.expiring(acquire("listing/expired", "cleo"))
	for _, req := range []tenure.Request{
		held, report(held, "half"), freed, release(freed), reserve("listing/reserved", "ann"),
		takeover("listing/taken"), revoke("listing/revoked"), expired,
	} {
		t.must(req)
	}
	t.expire(expired.Key)
	listed := t.list(t.store, "listing/")
	if len(listed) != 6 {
		t.Fatalf("6 keys were used, %d are listed", len(listed))
	}
	for _, rec := range listed {
		if d := differ(t.get(t.store, rec.Key), rec, historyOrNone); d != "" {
			t.Fatalf("List and Get differ on %q: %s", rec.Key, d)
		}
	}
}

func leftEarly(t *trial) {
	var keys []string
	for n := range 20 {
		keys = append(keys, fmt.Sprintf("listing/early/%02d", n))
	}
	t.fill(keys)
	seen := 0
	for rec, err := range t.store.List(t.ctx, "listing/") {
		if err != nil || rec.Key != keys[seen] {
			t.Fatalf("index %d: %q, %v", seen, rec.Key, err)
		}
		// The body of the loop may use the store.
		t.get(t.store, rec.Key)
		if seen++; seen == 5 {
			break
		}
	}
	t.lists("listing/", keys)
}

func listingMeanwhile(t *trial) {
	var keys []string
	for n := range t.many(200, 30, 50) {
		keys = append(keys, fmt.Sprintf("listing/still/%03d", n))
	}
	t.fill(keys)
	busy := t.open()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			mine := acquire(fmt.Sprintf("listing/moving/%d", n%20), "bob")
			t.resolve(busy, mine)
			t.resolve(busy, release(mine))
		}
	}()
	defer func() { close(stop); <-done }()
	for range t.many(20, 3, 5) {
		t.lists("listing/still/", keys)
		last := ""
		for _, rec := range t.list(t.store, "listing/") {
			if rec.Key <= last {
				t.Fatalf("%q is listed after %q", rec.Key, last)
			}
			last = rec.Key
		}
	}
}
