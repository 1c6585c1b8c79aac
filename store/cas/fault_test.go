package cas_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// TestAFaultCountsOnTheFirstTryOnly: a register may report a conflict although
// its change counted. A fault after that proves nothing about the request.
func TestAFaultCountsOnTheFirstTryOnly(t *testing.T) {
	full := store.Fault(errors.New("the disk is full"))
	req := tenure.Request{
		Verb: tenure.Acquire, Key: "k", Secret: tenure.NewSecret(), Owner: "ann", Instance: "1", TTL: time.Minute,
	}
	for _, conflict := range []bool{false, true} {
		reg := newRegister()
		reg.onSwap = func(context.Context, tenure.Record) error {
			if conflict {
				reg.onSwap = func(context.Context, tenure.Record) error { return full }
				return cas.ErrConflict
			}
			return full
		}
		st := cas.New(reg, nil)
		err := st.Apply(t.Context(), []tenure.Request{req})[0].Err
		if !errors.Is(err, store.ErrUnknown) || store.IsFault(err) == conflict {
			t.Errorf("after a conflict (%t): %v, a fault: %t", conflict, err, store.IsFault(err))
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestADamagedRecordIsAFault: asking again does not repair it.
func TestADamagedRecordIsAFault(t *testing.T) {
	reg := newRegister()
	reg.put(tenure.Record{Key: "k", State: "odd"})
	st := cas.New(reg, nil)
	defer st.Close()
	if _, err := st.Get(t.Context(), "k"); !store.IsFault(err) || !errors.Is(err, cas.ErrDamaged) {
		t.Errorf("it is read as %v", err)
	}
}
