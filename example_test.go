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
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
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
		return client.Do(ctx, "reports/daily", &croft.LeaseOptions{TTL: time.Minute, Guards: []guard.Guard{report}},
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
		if errors.Is(err, croft.ErrHeld) {
			fmt.Println("done today")
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
			return croft.Fatal(errors.New("the schema has changed"))
		}
		return nil
	})
	fmt.Println(turns, err)
	// Output: 3 the schema has changed
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
		_ = lease.Report(ctx, "half way") // the next renewal would find out as well
		<-ctx.Done()
		return context.Cause(ctx)
	})
	var lost *croft.LostError
	var refusal *tenure.NotOwnedError
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
