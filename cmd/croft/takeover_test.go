package main

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// hangingStore does not answer. If gets is set, it answers Get.
type hangingStore struct {
	store.Store
	gets bool
}

func (s hangingStore) Get(ctx context.Context, key string) (tenure.Record, error) {
	if s.gets {
		return s.Store.Get(ctx, key)
	}
	<-ctx.Done()
	return tenure.Record{}, ctx.Err()
}

func (hangingStore) List(ctx context.Context, _ string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		<-ctx.Done()
		yield(tenure.Record{}, ctx.Err())
	}
}

// TestAskingForAnUnknownKeyIsBoundedByTheTimeout: an operator who revokes a key
// gets an answer after --timeout, also if the store hangs.
func TestAskingForAnUnknownKeyIsBoundedByTheTimeout(t *testing.T) {
	for _, gets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := &app{&cli.App{Timeout: 5 * time.Second}}
			client := croft.New(hangingStore{mem.New(nil), gets}, nil)
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if err := a.mustKnow(ctx, client, "jobs/a", false); err == nil {
				t.Error("the key is known")
			}
			if took := time.Since(began); took != a.Timeout {
				t.Errorf("Get answers: %v; it took %s, want %s", gets, took, a.Timeout)
			}
		})
	}
}
