package work_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// An item names the file that its owners write. After a reassign the file
// refuses the old owner, although no other owner has begun.
func ExampleAct() {
	ctx, ledger := context.Background(), mem.NewLedger(nil)
	folder, err := os.MkdirTemp("", "reports-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	allowed, err := guard.Allow(folder)
	if err != nil {
		log.Fatal(err)
	}
	o := &work.FenceOptions{Raise: allowed}

	added, err := work.Enqueue(ctx, ledger, "reports", "page 1", &work.ItemOptions{
		Guards: []string{filepath.Join(folder, "{id}.json")},
	})
	if err != nil {
		log.Fatal(err)
	}

	// work.Run does this for its handlers.
	claim := work.Claim{
		Queues: []string{"reports"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann@one", TTL: time.Minute,
	}
	items, err := ledger.Claim(ctx, claim)
	if err != nil {
		log.Fatal(err)
	}
	if err := work.Fence(ctx, ledger, items, claim.Secret, o)[0]; err != nil {
		log.Fatal(err)
	}

	// Ann does not answer.
	moved := work.Act(ctx, ledger, []work.Request{{
		Verb: work.Reassign, ID: added.ID, Secret: tenure.NewSecret(), Owner: "bob@two", Actor: "olga", Note: "ann is stuck",
	}}, o)[0]
	fmt.Println("the fence is up:", moved.Err == nil)

	// Ann wakes up, and writes.
	file, err := guard.Open(ctx, items[0].Guards[0])
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	_, err = file.Raise(ctx, items[0].Record.Stamp())
	fmt.Println("the file refuses ann:", errors.Is(err, work.ErrStale))
	// Output:
	// the fence is up: true
	// the file refuses ann: true
}
