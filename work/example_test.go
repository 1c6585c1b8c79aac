package work_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// A worker does the items of a queue until its context ends. Payload and result
// have types of their own. The ledger gets what the handler returns in one
// step: the result, and the effects of it.
func ExampleRun() {
	type guest struct{ Name string }
	type letter struct{ Text string }

	ctx, stop := context.WithCancel(context.Background())
	ledger := mem.NewLedger(nil) // or work.Open(ctx, "postgres://…")
	defer ledger.Close()

	// Adding the same guest again under the same Unique would add nothing.
	if _, err := work.Enqueue(ctx, ledger, "greetings", guest{"ann"}, &work.ItemOptions{Unique: "ann, 1 March"}); err != nil {
		log.Fatal(err)
	}

	err := work.Run(ctx, ledger, map[string]work.Handler{
		"greetings": work.Handle(func(ctx context.Context, job *work.Job, g guest) (work.Result, error) {
			defer stop() // one is enough here
			if err := job.Report(ctx, "writing"); err != nil {
				return work.Result{}, err
			}
			return work.JSON(letter{"Dear " + strings.ToUpper(g.Name)}, work.Emission{Name: "mail", Body: []byte(g.Name)})
		}),
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for item, err := range ledger.List(context.Background(), work.Query{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s after %d attempt: %s\n", item.State, item.Attempts, item.Result)
	}
	for effect, err := range ledger.Effects(context.Background(), work.EffectQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("to %s, %s: %s\n", effect.To, effect.State, effect.Body)
	}
	// Output:
	// done after 1 attempt: {"Text":"Dear ANN"}
	// to mail, pending: ann
}

// A payload that the handler cannot read ends its item at once, with a reason.
func ExampleHandle() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ledger := mem.NewLedger(nil)
	defer ledger.Close()
	added, err := work.Enqueue(ctx, ledger, "resize", []byte(`{"width": "wide"}`), nil)
	if err != nil {
		log.Fatal(err)
	}

	type image struct{ Width int }
	resize := work.Handle(func(_ context.Context, _ *work.Job, i image) (work.Result, error) {
		return work.JSON(i.Width * 2)
	})
	err = work.Run(ctx, ledger, map[string]work.Handler{"resize": resize}, &work.Options{
		Observe: func(e work.Event) {
			if e.Kind == work.EventFailed {
				stop()
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	item, err := ledger.Get(context.Background(), added.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(item.State, "after", item.Attempts, "attempt")
	fmt.Println(strings.Contains(item.Error, "cannot unmarshal string"))
	// Output:
	// dead after 1 attempt
	// true
}

// An owner that was replaced is refused, and operators can read that it tried.
func ExampleLedger() {
	ctx := context.Background()
	ledger := mem.NewLedger(nil)
	defer ledger.Close()
	added, err := work.Enqueue(ctx, ledger, "reports", "page 1", nil)
	if err != nil {
		log.Fatal(err)
	}

	claim := work.Claim{Queues: []string{"reports"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: work.DefaultTTL}
	items, err := ledger.Claim(ctx, claim)
	if err != nil {
		log.Fatal(err)
	}
	// ann falls asleep in the middle, and a supervisor gives the item to bob.
	moved := ledger.Apply(ctx, []work.Request{{Verb: work.Reassign, ID: added.ID, Secret: tenure.NewSecret(), Owner: "bob", Actor: "olga", Note: "ann does not answer"}})[0]
	if moved.Err != nil {
		log.Fatal(moved.Err)
	}

	// ann wakes up and knows nothing of it.
	answer := ledger.Apply(ctx, []work.Request{{Verb: work.Complete, ID: added.ID, Token: items[0].Record.Token, Secret: claim.Secret, Result: []byte("mine")}})[0]
	fmt.Println("stale:", errors.Is(answer.Err, work.ErrStale))
	for refusal, err := range ledger.Refusals(ctx, work.RefusalQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s by %s was refused, the item is %s's\n", refusal.Verb, refusal.PresentedOwner, refusal.NewestOwner)
	}
	// Output:
	// stale: true
	// complete by ann was refused, the item is bob's
}
