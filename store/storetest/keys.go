package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

func keys() []check {
	return []check{
		{"keys with every odd character are distinct keys", oddKeys},
		{"keys that are almost the same are distinct keys", similarKeys},
		{"the longest keys", longestKeys},
		{"malformed keys are refused everywhere", notKeys},
	}
}

// oddWords are texts that have a special meaning in some store, shell, file
// system or query language.
func oddWords() []string {
	return []string{
		"a b", " a", "a ", "  ", "'", "''", `"`, "`", "'; DROP TABLE leases; --", "$1", "${HOME}", "$(id)", "%s", "%d",
		"%00", "%2F", "%", "%%", `\`, `\\`, `\n`, `\x00`, `a\`,
		"-", "--", "-rf", "--help", "~", "~root", "...", "....", ".a", "a.", ".lock", ".tmp", "*", "?", "[a-z]",
		"{a,b}", "{tag}", "}{", "#", "a#b", "&", "a&b=c", "a=b", ";", ":", "a:b", "::", ",", "@", "a@b", "!", "^", "|",
		"<a>", "(a)", "+", "_", "__",
		"CON", "nul", "aux.txt", "com1", "null", "NULL", "nil", "undefined", "true", "0", "-1", "1e9", "NaN", "0x10",
		"é", "e\u0301", "ß", "ẞ", "ss", "İ", "i\u0307", "ı", "Å", "Å", "ﬁ", "日本語", "العربية", "עברית", "ไทย", "🙂",
		"👩\u200d👩\u200d👧", "\u00a0", "\u2028", "\u2029", "\u200b", "\u202e", "\ufeff", "\ufffd", "\uffff", "\U0010ffff",
		"\ue000",
		"a/b", "a/b/c", "a/-/b", "a/ /b", "a/.../b",
	}
}

// everyCharacter returns keys with each printable ASCII character. A slow store
// gets only a few of the letters and digits, because none of them is special.
func everyCharacter(slow bool) []string {
	var keys []string
	for c := ' '; c <= '~'; c++ {
		ordinary := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if c != '/' && !(slow && ordinary && !strings.ContainsRune("09AEZaez", c)) {
			keys = append(keys, fmt.Sprintf("x%cy", c))
		}
	}
	return keys
}

// distinct acquires all keys and makes sure that each has its own record.
func (t *trial) distinct(keys []string) {
	t.Helper()
	seen := map[string]bool{}
	requests := []tenure.Request{}
	for _, key := range keys {
		if err := fence.CheckKey(key); err != nil || seen[key] {
			t.Fatalf("the suite's key %q is invalid or there twice: %v", key, err)
		}
		seen[key] = true
		requests = append(requests, acquire(key, fmt.Sprintf("owner %d", len(requests))))
	}
	for i, a := range t.apply(t.store, requests...) {
		if a.Err != nil {
			t.Fatalf("acquiring %q: %v; is it taken for another key?", keys[i], a.Err)
		}
	}
	for i, key := range keys {
		rec := t.get(t.store, key)
		if rec.Key != key || rec.Grant != requests[i].Secret.Grant() || rec.Owner != requests[i].Owner {
			t.Fatalf("Get(%q) is the record of %q, owner %q", key, rec.Key, rec.Owner)
		}
	}
	t.lists("", keys)
	// The release of a key must release no other key.
	var ends []tenure.Request
	for i := 0; i < len(requests); i += 2 {
		ends = append(ends, release(requests[i]))
	}
	for i, a := range t.apply(t.store, ends...) {
		if a.Err != nil {
			t.Fatalf("releasing %q: %v", ends[i].Key, a.Err)
		}
	}
	for i, a := range t.apply(t.store, requests...) { // again: each answer is about its own key
		switch {
		case a.Record.Key != keys[i]:
			t.Fatalf("%q again: the answer is about %q", keys[i], a.Record.Key)
		case i%2 == 0:
			t.refused(a, tenure.WhyReleased)
		case a.Err != nil || a.Record.State != tenure.Held:
			t.Fatalf("every second key was released; %q is %s: %v", keys[i], a.Record.State, a.Err)
		}
	}
}

func oddKeys(t *trial) {
	var keys []string
	for _, word := range append(oddWords(), everyCharacter(t.Slow)...) {
		keys = append(keys, word)
		if !t.Slow {
			keys = append(keys, "ns/"+word, word+"/end")
		}
	}
	// Some words make the same key twice.
	seen := map[string]bool{}
	unique := keys[:0]
	for _, key := range keys {
		if !seen[key] {
			unique = append(unique, key)
		}
		seen[key] = true
	}
	t.distinct(unique)
}

func similarKeys(t *trial) {
	t.distinct([]string{
		"job", "Job", "JOB", "jOB", "job ", " job", "job.", ".job", "job/job", "job/Job", "job/a", "job/a/b", "job%2Fa",
		"job%2fa", "job\\a", "job:a", "joba", "job-a", "job_a", "job+a", "job a", "job%20a",
		"caf\u00e9", "cafe\u0301", "cafe", "CAFÉ", "stra\u00dfe", "strasse", "\u212bngstrom", "\u00c5ngstrom",
		"A\u030angstrom", "\ufb01le", "file", "\uff46ile",
		"0", "00", "0.0", "1", "01", "1.0", "a\u200bb", "ab", "a\u00a0b", "a b", "a\u2003b", "K", "\u212a", "k",
	})
}

func longestKeys(t *trial) {
	long := strings.Repeat("k", fence.MaxKey)
	t.distinct([]string{
		long, long[1:], long[:fence.MaxKey-1] + "K", "K" + long[1:], long[:fence.MaxKey-1] + "%",
		strings.Repeat("s/", fence.MaxKey/2-1) + "ss", strings.Repeat("é", fence.MaxKey/2),
		strings.Repeat("🙂", fence.MaxKey/4),
		strings.Repeat("%", fence.MaxKey), strings.Repeat("'", fence.MaxKey), strings.Repeat(`\`, fence.MaxKey),
		strings.Repeat("*", fence.MaxKey),
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 254) + "/" + strings.Repeat("x", 256),
	})
}

func notKeys(t *trial) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "../a", "a/../b", "a\x00b", "a\nb", "a\tb", "a\x7fb", "a\u0085b",
		"\xff", "a\xc3", "\xed\xa0\x80",
		strings.Repeat("k", fence.MaxKey+1), strings.Repeat("k", 4096),
	} {
		if fence.CheckKey(key) == nil {
			t.Fatalf("the suite's invalid key %q is valid", key)
		}
		for _, req := range []tenure.Request{acquire(key, "ann"), renew(acquire(key, "ann")), takeover(key)} {
			t.step(req)
		}
		if _, err := t.store.Get(t.ctx, key); !errors.Is(err, fence.ErrInvalid) {
			t.Fatalf("Get(%.20q): %v, want an error matching fence.ErrInvalid", key, err)
		}
	}
	t.lists("", nil)
}
