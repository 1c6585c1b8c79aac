package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// A worker does the items of a queue until its context ends. The ledger gets
// what the handler returns in one step: the result, and the effects of it.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	ledger := mem.NewLedger(nil) // or work.Open(ctx, "postgres://…")

	ledger.Apply(ctx, []work.Request{{Verb: work.Add, ID: work.NewID(), Queue: "greetings", Payload: []byte("ann"), Unique: "ann, 1 March"}})

	err := work.Run(ctx, ledger, map[string]work.Handler{
		"greetings": func(ctx context.Context, job *work.Job) (work.Result, error) {
			defer stop() // one is enough here
			if err := job.Report(ctx, "writing"); err != nil {
				return work.Result{}, err
			}
			text := "Dear " + strings.ToUpper(string(job.Payload()))
			return work.Result{Body: []byte(text), Effects: []work.Emission{{Name: "mail", Body: []byte(text)}}}, nil
		},
	}, nil)
	if err != nil {
		fmt.Println(err)
	}
	for item := range ledger.List(context.Background(), work.Query{}) {
		fmt.Printf("%s after %d attempt: %s\n", item.State, item.Attempts, item.Result)
	}
	for effect := range ledger.Effects(context.Background(), work.EffectQuery{}) {
		fmt.Printf("to %s, %s: %s\n", effect.To, effect.State, effect.Body)
	}
	// Output:
	// done after 1 attempt: Dear ANN
	// to mail, pending: Dear ANN
}

// An owner that was replaced is refused, and operators can read that it tried.
func ExampleLedger() {
	ctx := context.Background()
	ledger := mem.NewLedger(nil)
	id := work.NewID()
	ledger.Apply(ctx, []work.Request{{Verb: work.Add, ID: id, Queue: "reports"}})

	claim := work.Claim{Queues: []string{"reports"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: work.DefaultTTL}
	items, err := ledger.Claim(ctx, claim)
	if err != nil {
		fmt.Println(err)
	}
	// ann falls asleep in the middle, and a supervisor gives the item to bob.
	ledger.Apply(ctx, []work.Request{{Verb: work.Reassign, ID: id, Secret: tenure.NewSecret(), Owner: "bob", Actor: "olga", Note: "ann does not answer"}})

	// ann wakes up and knows nothing of it.
	answer := ledger.Apply(ctx, []work.Request{{Verb: work.Complete, ID: id, Token: items[0].Record.Token, Secret: claim.Secret, Result: []byte("mine")}})[0]
	fmt.Println("stale:", errors.Is(answer.Err, work.ErrStale))
	for refusal := range ledger.Refusals(ctx, work.RefusalQuery{}) {
		fmt.Printf("%s by %s was refused, the item is %s's\n", refusal.Verb, refusal.PresentedOwner, refusal.NewestOwner)
	}
	// Output:
	// stale: true
	// complete by ann was refused, the item is bob's
}
