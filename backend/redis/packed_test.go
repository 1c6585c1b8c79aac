package redis

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestPackedValuesAreRead packs and reads the smallest and largest numbers and
// texts.
func TestPackedValuesAreRead(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", strings.Repeat("b", 31), strings.Repeat("c", 256), strings.Repeat("d", 1<<16-1), "\x00\xff"}
	numbers := []int64{0, 1, 255, 1 << 32, int64(fence.MaxToken), -1}
	var p packing
	for _, text := range texts {
		p.text(text)
	}
	for _, n := range numbers {
		p.number(n)
	}
	r := &packed{rest: string(p)}
	for _, want := range texts {
		if got := r.text(); got != want {
			t.Errorf("a text of %d bytes was read as one of %d", len(want), len(got))
		}
	}
	for _, want := range numbers {
		if got := r.number(); got != want {
			t.Errorf("%d was read as %d", want, got)
		}
	}
	if r.err != nil || r.rest != "" {
		t.Errorf("at the end: %v, %d bytes are left", r.err, len(r.rest))
	}
}

// TestTheScriptAndGoAgreeOnSizes compares the sizes in Go with those in the
// scripts.
func TestTheScriptAndGoAgreeOnSizes(t *testing.T) {
	t.Parallel()
	mostWords := 8 + 3*tenure.MaxName + tenure.MaxText + tenure.MaxGuards*(tenure.MaxText+1) - 1 + tenure.MaxText
	if most := strconv.Itoa(mostWords); !strings.Contains(readSource, most) {
		t.Errorf("read.lua does not say that texts have at most %s bytes", most)
	}
	if most := fmt.Sprintf("field == 3 and %d ", 2+tenure.MaxCheckpoint); !strings.Contains(readSource, most) {
		t.Errorf("read.lua does not say %q of checkpoints", most)
	}
	for name, want := range map[string]int{"MOST_WORDS": mostWords, "RECORD_SIZE": recordSize, "MOST_SAVED": 2 + tenure.MaxCheckpoint, "WITH_MORE": withMore, "HISTORY": tenure.HistoryLen - 1, "CHECKPOINT": int(checkpoint), "LEAVE": int(leave)} {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^--# .*\b%s %d\b`, name, want)).MatchString(applySource) {
			t.Errorf("apply.lua does not say %s %d", name, want)
		}
	}
	if left := regexp.MustCompile(`\b[A-Z][A-Z_]+\b`).FindAllString(regexp.MustCompile(`(?m)--.*$|'[^']*'`).ReplaceAllString(named(applySource), ""), -1); !slices.Equal(slices.Compact(left), slices.Compact([]string{"KEYS", "ARGV", "KEYS"})) {
		t.Errorf("names without a value: %q", left)
	}
	var p packing
	p.inQueue(leave)
	if len(p) != requestSize {
		t.Errorf("a request has %d bytes, not %d", len(p), requestSize)
	}
}

// FuzzParseRecord checks that any bytes from Redis are read or refused.
func FuzzParseRecord(f *testing.F) {
	f.Add("")
	f.Add("nonsense")
	f.Add("\x01\x02\x00")
	f.Add("\x01" + strings.Repeat("\xff", 400))
	f.Add("\x01\x02\x00\x00" + strings.Repeat("\x00", 200))
	f.Fuzz(func(t *testing.T, text string) {
		for _, history := range []bool{false, true} {
			rec, err := parseRecord("a/b", text, history)
			if err != nil && !rec.IsZero() {
				t.Errorf("refused (%v), and read as %+v", err, rec)
			}
		}
	})
}

// TestGrantsThatBeginTheSameAreToldApart checks grants with the same first
// bytes, by which the script looks for them in the past.
func TestGrantsThatBeginTheSameAreToldApart(t *testing.T) {
	t.Parallel()
	alike := map[string][]tenure.Request{}
	var same []tenure.Request
	for len(same) < 3 {
		req := claim("alike/key", "ann")
		digits := string(req.Secret.Grant()[:4])
		alike[digits] = append(alike[digits], req)
		same = alike[digits]
	}
	server := testenv.Redis(t)
	st, ctx := New(dial(t, server), &Options{Prefix: server.Prefix()}), t.Context()
	for _, req := range same {
		if a := one(ctx, st, req); a.Err != nil {
			t.Fatalf("a grant that begins like one of the past: %v", a.Err)
		}
		if a := one(ctx, st, then(tenure.Release, req)); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for _, req := range same {
		var lost *tenure.NotOwnedError
		if a := one(ctx, st, req); !errors.As(a.Err, &lost) || lost.Why != tenure.WhyReleased {
			t.Errorf("a late copy: %v, want released", a.Err)
		}
	}
}
