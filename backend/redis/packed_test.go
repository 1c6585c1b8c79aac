package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestWhatIsPackedIsRead, at every length where the form changes.
func TestWhatIsPackedIsRead(t *testing.T) {
	t.Parallel()
	texts := []string{"", "x", strings.Repeat("a", 31), strings.Repeat("b", 32), strings.Repeat("é", 127), strings.Repeat("c", 255), strings.Repeat("d", 256), strings.Repeat("e", 1<<16)}
	numbers := []int64{0, 1, 127, 128, 255, 256, 1 << 31, 1 << 32, int64(fence.MaxToken)}
	var p packing
	for range 3 {
		p.array(15)
		p.array(16)
		p.array(chunkSize)
	}
	for _, text := range texts {
		p.text(text)
	}
	for _, n := range numbers {
		p.number(n)
	}
	p.number(-1)
	p.duration(90 * time.Second)
	r := &packed{rest: string(p)}
	for range 3 {
		r.array(15)
		r.array(16)
		r.array(chunkSize)
	}
	for _, want := range texts {
		if got := r.text(); got != want {
			t.Errorf("a text of %d bytes was read as one of %d", len(want), len(got))
		}
	}
	for _, want := range append(numbers, 0) {
		if got := r.number(); got != want {
			t.Errorf("%d was read as %d", want, got)
		}
	}
	if got := r.duration(); got != 90*time.Second || r.err != nil || r.rest != "" {
		t.Errorf("at the end: %s, %v, %d bytes are left", got, r.err, len(r.rest))
	}
}

// FuzzParseRecord: whatever is in Redis, it is read or refused.
func FuzzParseRecord(f *testing.F) {
	f.Add("")
	f.Add("nonsense")
	f.Add("\xdc\x00\x17\x01\x02\xa1g")
	f.Add("\xdc\x00\x17\xdb\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := parseRecord("a/b", text)
		if err != nil && !rec.IsZero() {
			t.Errorf("refused (%v), and read as %+v", err, rec)
		}
	})
}

// TestGrantsThatBeginTheSameAreToldApart: the record looks grants of the past up by their first digits.
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
