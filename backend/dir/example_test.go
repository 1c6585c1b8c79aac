package dir_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/tenure"
)

// Two processes open the same directory and ask for the same key.
func ExampleOpen() {
	path, err := os.MkdirTemp("", "leases")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(path)
	ctx := context.Background()
	ask := func(owner string) {
		st, err := dir.Open(path, nil)
		if err != nil {
			panic(err)
		}
		defer st.Close()
		answer := st.Apply(ctx, []tenure.Request{{
			Verb: tenure.Acquire, Key: "reports/daily", Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute,
		}})[0]
		fmt.Printf("%s: the key is %s by %s (%v)\n", owner, answer.Record.State, answer.Record.Owner, answer.Err == nil)
	}
	ask("ann")
	ask("bob")
	// Output:
	// ann: the key is held by ann (true)
	// bob: the key is held by ann (false)
}
