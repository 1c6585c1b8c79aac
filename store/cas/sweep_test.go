package cas_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// aged makes a store with n records that a sweep may drop, and its register.
func aged(t *testing.T, n int, o cas.Options) (*register, *cas.Store) {
	t.Helper()
	reg := newRegister()
	o.SweepEvery, o.Retention = -1, time.Hour
	st := cas.New(reg, &o)
	for i := range n {
		mine := acquire(fmt.Sprint("k/", i))
		must(t, st, mine, then(tenure.Release, mine))
	}
	reg.advance(time.Hour)
	return reg, st
}

// TestASweepOfAFarRegisterDropsSeveralAtATime: each drop waits until four are
// in flight.
func TestASweepOfAFarRegisterDropsSeveralAtATime(t *testing.T) {
	reg, st := aged(t, 8, cas.Options{SweepParallel: 4})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var mu sync.Mutex
	together, most := 0, 0
	all := make(chan struct{})
	reg.onDrop = func(context.Context, string) error {
		mu.Lock()
		together++
		if most = max(most, together); together == 4 && most == 4 {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			together--
			mu.Unlock()
		}()
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if n, err := st.Sweep(ctx); n != 8 || err != nil || most != 4 {
		t.Errorf("%d dropped, at most %d at a time, %v", n, most, err)
	}
}

// TestASweepEndsAtTheFirstErrorOfADrop: also if it drops several at a time. A
// conflict is no such error: the record has changed, and the sweep goes on.
func TestASweepEndsAtTheFirstErrorOfADrop(t *testing.T) {
	for _, parallel := range []int{1, 4} {
		reg, st := aged(t, 100, cas.Options{SweepParallel: parallel})
		var mu sync.Mutex
		asked, broken := 0, errors.New("broken")
		reg.onDrop = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			switch asked++; asked {
			case 1:
				return cas.ErrConflict
			case 3:
				return broken
			}
			return nil
		}
		n, err := st.Sweep(t.Context())
		if !errors.Is(err, broken) || !errors.Is(err, store.ErrUnknown) || n != asked-2 || asked > 3+2*parallel {
			t.Errorf("%d at a time: %d dropped by %d calls, %v", parallel, n, asked, err)
		}
	}
}
