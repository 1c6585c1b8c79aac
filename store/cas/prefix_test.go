package cas_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/croft-dev/croft/store/cas"
)

// prefixed is a register whose ScanPrefix leaves out only some of the other
// keys.
type prefixed struct {
	*register
	asked []string
}

func (r *prefixed) ScanPrefix(ctx context.Context, prefix string) iter.Seq2[cas.Entry, error] {
	r.asked = append(r.asked, prefix)
	return func(yield func(cas.Entry, error) bool) {
		for held, err := range r.Scan(ctx) {
			if strings.HasPrefix(held.Record.Key, prefix[:1]) && !yield(held, err) {
				return
			}
		}
	}
}

// TestTheRegisterMayFilterAListingByPrefix: the register may choose the keys by
// prefix, and the store filters its choice.
func TestTheRegisterMayFilterAListingByPrefix(t *testing.T) {
	reg := &prefixed{register: newRegister()}
	st := cas.New(reg, &cas.Options{SweepEvery: -1})
	defer st.Close()
	must(t, st, acquire("jobs/a"), acquire("jars/b"), acquire("reports/c"))
	for prefix, want := range map[string]int{"jobs/": 1, "j": 2, "x": 0, "": 3} {
		if records, err := listed(t, st, prefix); len(records) != want || err != nil {
			t.Errorf("under %q are %d records, %v; want %d", prefix, len(records), err, want)
		}
	}
	if len(reg.asked) != 3 {
		t.Errorf("the register was asked for %q", reg.asked)
	}
}
