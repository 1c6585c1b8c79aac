package cas_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// restarting is a register that counts the versions of each record. After a
// drop it begins again at 1.
type restarting struct{ *register }

func (r restarting) Swap(_ context.Context, old cas.Version, next tenure.Record, _ bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.versions[next.Key] != old {
		return cas.ErrConflict
	}
	n, _ := strconv.Atoi(string(old)) // 0 if there is no record
	r.records[next.Key], r.versions[next.Key] = next, cas.Version(strconv.Itoa(n+1))
	return nil
}

// onRegister is a place for the suite of lease stores.
func onRegister(of func(*register) cas.Register) func(testing.TB) storetest.Harness {
	return func(testing.TB) storetest.Harness {
		reg := newRegister()
		return storetest.Harness{
			Open: func(_ testing.TB, o storetest.Options) store.Store {
				return cas.New(of(reg), &cas.Options{Retention: o.Retention, SweepEvery: -1})
			},
			Wipe: func(testing.TB) {
				reg.mu.Lock()
				defer reg.mu.Unlock()
				clear(reg.records)
				clear(reg.versions)
			},
			Advance: reg.advance,
		}
	}
}

// TestTheSuiteNoticesAVersionThatComesBack: also if the register is so fast
// that two clients never meet in it by chance.
func TestTheSuiteNoticesAVersionThatComesBack(t *testing.T) {
	t.Parallel()
	const by = "retention/a client that stood still during a sweep takes nothing from a new holder"
	sound := onRegister(func(r *register) cas.Register { return r })
	if failures := storetest.Failures(t, sound, "retention"); len(failures) > 0 {
		t.Errorf("no version comes back, and yet: %q", failures)
	}
	broken := onRegister(func(r *register) cas.Register { return restarting{r} })
	if failures := storetest.Failures(t, broken, "retention"); len(failures[by]) == 0 {
		t.Errorf("versions come back, and only these checks fail: %q", failures)
	}
}
