package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// unsteady delays calls and answers at random, so that they overtake each
// other, and loses some answers.
func unsteady(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	stay := func() {
		if rand.N(3) == 0 {
			time.Sleep(rand.N(20 * time.Millisecond))
		}
	}
	stay()
	err := call(ctx, method, req, reply, conn, opts...)
	stay()
	if strings.HasSuffix(method, "/Txn") && rand.N(10) == 0 {
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return err
}

// TestLaw4EveryConfirmedRenewalStays: callers of two stores acquire, renew,
// report and ask again, several at a time for one lease. Calls and answers
// overtake each other or are lost. Others never see a lease end before the
// latest deadline that was promised to its holder.
func TestLaw4EveryConfirmedRenewalStays(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	const keys, terms, mates, acts = 8, 8, 3, 6
	client := dial(t, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(unsteady))
	})
	stores := []*Store{open(t, client, c.Prefix()), open(t, client, c.Prefix())}
	judge := open(t, dial(t, c), c.Prefix())
	settle := func(st *Store, req tenure.Request) store.Answer {
		for {
			if a := one(t.Context(), st, req); !errors.Is(a.Err, store.ErrUnknown) || t.Context().Err() != nil {
				return a
			}
		}
	}
	var all sync.WaitGroup
	for k := range keys {
		st := stores[k%2]
		all.Go(func() {
			for term := range terms {
				mine := longClaim(fmt.Sprintf("storm/%d", k), fmt.Sprintf("term %d", term))
				if a := settle(st, mine); a.Err != nil {
					t.Errorf("%s: %v", mine.Key, a.Err)
					return
				}
				var mu sync.Mutex
				var promised time.Time
				check := func() {
					mu.Lock()
					want := promised
					mu.Unlock()
					if rec, err := judge.Get(t.Context(), mine.Key); err == nil && rec.Deadline.Before(want) {
						t.Errorf("%s was promised until %s, and ends at %s", mine.Key, want, rec.Deadline)
					}
				}
				var some sync.WaitGroup
				for range mates {
					some.Go(func() {
						for range acts {
							req, by := then([]tenure.Verb{tenure.Renew, tenure.Renew, tenure.Report}[rand.N(3)], mine), st
							if rand.N(5) == 0 {
								req = mine // a copy of the acquire
							}
							if rand.N(8) == 0 {
								by = stores[rand.N(2)]
							}
							if a := one(t.Context(), by, req); a.Err == nil && req.Verb != tenure.Report {
								mu.Lock()
								if a.Record.Deadline.After(promised) {
									promised = a.Record.Deadline
								}
								mu.Unlock()
							} else if a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) {
								t.Errorf("%s of %s: %v", req.Verb, mine.Key, a.Err)
							}
							check()
						}
					})
				}
				some.Wait()
				check()
				if a := settle(st, then(tenure.Release, mine)); a.Err != nil {
					t.Errorf("%s: %v", mine.Key, a.Err)
				}
			}
		})
	}
	all.Wait()
}
