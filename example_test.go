package croft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/dir" // stores in directories
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
)

// One process at a time does the work. The file that takes the result refuses
// writes by earlier owners.
func Example() {
	folder, err := os.MkdirTemp("", "croft-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	shared, target := filepath.Join(folder, "shared"), filepath.Join(folder, "today.json")
	generate := func(context.Context) ([]byte, error) { return []byte(`{"ok": true}`), nil }

	publish := func(ctx context.Context) error {
		client, err := croft.Open(ctx, shared, nil)
		if err != nil {
			return err
		}
		defer client.Close()

		report, err := file.Open(target, nil)
		if err != nil {
			return err
		}

		// At most one process at a time runs this function. From then on,
		// report refuses writes by earlier owners.
		return client.Do(ctx, "reports/daily", &croft.LeaseOptions{TTL: time.Minute, Guards: []croft.Guard{report}},
			func(ctx context.Context, lease *croft.Lease) error {
				data, err := generate(ctx) // ctx ends when the lease does
				if err != nil {
					return err
				}
				_, err = report.Write(ctx, lease.Stamp(), bytes.NewReader(data))
				return err // refused with croft.ErrStale if a newer owner has been here
			})
	}

	fmt.Println(publish(context.Background()))
	written, err := os.ReadFile(target)
	fmt.Println(string(written), err)
	// Output:
	// <nil>
	// {"ok": true} <nil>
}

// Acquire, work and release step by step. Do is the same in one call.
func ExampleClient_Acquire() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), &croft.Options{Owner: "ana@box1"})
	defer client.Close()

	lease, err := client.Acquire(ctx, "items/42", &croft.LeaseOptions{TTL: 30 * time.Second, WaitFor: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Key(), lease.Record().Owner, lease.Record().Cause)

	_, err = client.Acquire(ctx, "items/42", nil)
	fmt.Println("a second one:", errors.Is(err, croft.ErrHeld))

	fmt.Println(lease.Release(ctx), context.Cause(lease.Context()) != nil)
	// Output:
	// items/42 ana@box1 first
	// a second one: true
	// <nil> true
}

// Once a day, however many machines try, and a little early or late.
func ExampleClient_Every() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil)
	defer client.Close()

	for range 2 {
		err := client.Every(ctx, "reports/daily", 24*time.Hour, nil, func(context.Context, *croft.Lease) error {
			fmt.Println("publishing")
			return nil
		})
		var held *croft.HeldError
		switch {
		case errors.As(err, &held) && held.Why == croft.WhyPeriod:
			fmt.Println("done today")
		case errors.As(err, &held):
			fmt.Println(held.Record.Owner, "is at it")
		case err != nil:
			log.Fatal(err)
		}
	}
	// Output:
	// publishing
	// done today
}

// Of all replicas, one reconciles in every interval, until the context ends or
// the work says that it cannot go on.
func ExampleClient_Loop() {
	client := croft.New(mem.New(nil), nil)
	defer client.Close()

	turns := 0
	err := client.Loop(context.Background(), "reconcile", 10*time.Millisecond, nil, func(context.Context, *croft.Lease) error {
		if turns++; turns == 3 {
			return croft.Final(errors.New("the schema has changed"))
		}
		return nil
	})
	fmt.Println(turns, err)
	// Output: 3 the schema has changed
}

// Of all candidates one leads, until it steps down, fails or is replaced.
func ExampleClient_Lead() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := croft.New(mem.New(nil), &croft.Options{Owner: "ana@box1"})
	defer client.Close()

	err := client.Lead(ctx, "scheduler", &croft.Election{
		OnElected: func(ctx context.Context, lease *croft.Lease) error {
			fmt.Println("elected")
			time.AfterFunc(time.Millisecond, stop) // here, the program ends soon
			<-ctx.Done()                           // this ctx also ends if the lease is lost
			return ctx.Err()
		},
		OnLost:      func(err error) { fmt.Println("over:", err) },
		OnNewLeader: func(leader croft.Record) { fmt.Println("the leader is", leader.Owner) },
	})
	fmt.Println(err)
	// Output:
	// the leader is ana@box1
	// elected
	// over: context canceled
	// <nil>
}

// A transfer needs both accounts, or neither. Callers that name the accounts in
// another order do not wait in a circle.
func ExampleClient_AcquireAll() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil)
	defer client.Close()

	accounts := []string{"accounts/bob", "accounts/ann"}
	leases, err := client.AcquireAll(ctx, accounts, &croft.LeaseOptions{WaitFor: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	work, stop := leases.Within(ctx) // ends when one of the leases does
	defer stop()
	for _, lease := range leases {
		fmt.Println(lease.Key(), work.Err())
	}

	fmt.Println(leases.Release(ctx))
	// Output:
	// accounts/bob <nil>
	// accounts/ann <nil>
	// <nil>
}

// At most two at the same time use a resource, on however many machines.
func ExampleClient_Do_slots() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil)
	defer client.Close()
	slots := &croft.LeaseOptions{Slots: 2}

	err := client.Do(ctx, "scraper", slots, func(ctx context.Context, _ *croft.Lease) error {
		return client.Do(ctx, "scraper", slots, func(ctx context.Context, _ *croft.Lease) error {
			fmt.Println("two scrape")
			err := client.Do(ctx, "scraper", slots, nil)
			fmt.Println("a third is refused:", errors.Is(err, croft.ErrHeld))
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// two scrape
	// a third is refused: true
	// <nil>
}

// One process acquires, another takes the lease up by its deed and goes on.
func ExampleClient_Adopt() {
	ctx := context.Background()
	st := mem.New(nil) // in earnest, each process opens the same store
	parent := croft.New(st, nil)
	lease, err := parent.Acquire(ctx, "reports/daily", nil)
	if err != nil {
		log.Fatal(err)
	}
	text := lease.Deed().Text() // it holds the secret: pass it on in a pipe
	if err := parent.Close(); err != nil {
		log.Fatal(err) // Close releases nothing
	}

	child := croft.New(st, nil)
	defer child.Close()
	deed, err := croft.ParseDeed(text)
	if err != nil {
		log.Fatal(err)
	}
	adopted, err := child.Adopt(ctx, deed, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(adopted.Key(), adopted.Stamp() == lease.Stamp(), adopted.Release(ctx))
	// Output: reports/daily true <nil>
}

// A cursor for the next holder of the key. It outlives its holder's lease,
// however that ends.
func ExampleLease_Save() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil)
	defer client.Close()

	// read copies two pages, and then the process fails.
	read := func(ctx context.Context, lease *croft.Lease) error {
		page := 0
		if cursor := lease.Checkpoint(); len(cursor) > 0 {
			if _, err := fmt.Sscanf(string(cursor), "page %d", &page); err != nil {
				return err
			}
		}
		for range 2 {
			page++
			fmt.Println("copies page", page)
			if err := lease.Save(ctx, fmt.Appendf(nil, "page %d", page)); err != nil {
				return err // the store did not confirm it, so stop here
			}
		}
		return errors.New("out of memory")
	}

	fmt.Println(client.Do(ctx, "import", nil, read))
	fmt.Println(client.Do(ctx, "import", nil, read)) // as the next process would
	// Output:
	// copies page 1
	// copies page 2
	// out of memory
	// copies page 3
	// copies page 4
	// out of memory
}

// A longer TTL for a part of the work in which the process may stand still.
func ExampleLease_SetTTL() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), nil)
	defer client.Close()
	err := client.Do(ctx, "reports/daily", nil, func(ctx context.Context, lease *croft.Lease) error {
		if err := lease.SetTTL(ctx, 10*time.Minute); err != nil {
			return err
		}
		fmt.Println(lease.Record().TTL, lease.Remaining() > 8*time.Minute)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 10m0s true
	// <nil>
}

// The cause of the work's context tells why the lease ended.
func ExampleLostError() {
	ctx := context.Background()
	st := mem.New(nil)
	client := croft.New(st, nil)
	defer client.Close()
	operator := croft.New(st, &croft.Options{Owner: "op@desk"})
	defer operator.Close()

	err := client.Do(ctx, "items/42", nil, func(ctx context.Context, lease *croft.Lease) error {
		if _, err := operator.Revoke(ctx, "items/42", croft.ByHand{Note: "wrong input"}); err != nil {
			return err
		}
		// The next renewal would find out as well.
		if err := lease.Report(ctx, "half way"); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	var lost *croft.LostError
	var refusal *croft.NotOwnedError
	if errors.As(err, &lost) && errors.As(err, &refusal) {
		fmt.Println(lost.Loss, "by", refusal.Record.Actor, "because of", refusal.Record.Note)
	}
	// Output: taken_over by op@desk because of wrong input
}

// An operator ends a term by hand. The record keeps the operator's name and
// reason, and the fence is raised where the holder wrote.
func ExampleClient_Takeover() {
	ctx := context.Background()
	client := croft.New(mem.New(nil), &croft.Options{Owner: "op@desk"})
	defer client.Close()
	if _, err := client.Acquire(ctx, "reports/daily", nil); err != nil {
		log.Fatal(err)
	}

	transfer, err := client.Takeover(ctx, "reports/daily", croft.ByHand{Note: "box1 hangs"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transfer.Record.Token > transfer.Before.Token, transfer.Record.Actor, transfer.Record.Note)
	for _, raised := range transfer.Raised {
		fmt.Println(raised.Target, raised.Err)
	}
	// Output: true op@desk box1 hangs
}
