package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// assignment is the payload of an item, and message its result. The newsroom
// gets the message, too.
type (
	assignment struct{ Region string }
	message    struct{ Region, By string }
)

// agent runs an agent process.
func agent(ctx context.Context, name, folder string) error {
	ledger, err := work.Open(ctx, storeURL(folder))
	if err != nil {
		return err
	}
	defer ledger.Close()
	if name == "ann" {
		return frozen(ctx, ledger, name, folder)
	}
	return diligent(ctx, ledger, name, folder)
}

// diligent is how an agent is usually written. work.Run claims items, keeps
// them alive, and writes what the handler returns. It ends the handler's
// context when an item is lost.
func diligent(ctx context.Context, ledger work.Ledger, name, folder string) error {
	return work.Run(ctx, ledger, map[string]work.Handler{
		queue: work.Handle(func(ctx context.Context, job *work.Job, a assignment) (work.Result, error) {
			region := a.Region
			if saved := job.Checkpoint(); len(saved) > 0 {
				says(os.Stdout, name, "takes %q under token %d, and begins with what was saved: %s", region,
					job.Stamp().Token, saved)
			} else {
				says(os.Stdout, name, "takes %q under token %d", region, job.Stamp().Token)
				if err := job.Save(ctx, research(region, name)); err != nil {
					return work.Result{}, err
				}
			}
			time.Sleep(200 * time.Millisecond) // writing
			if err := publish(ctx, folder, region, name, job.Stamp()); err != nil {
				return work.Result{}, err
			}
			says(os.Stdout, name, "publishes %q", region)
			return result(region, name)
		}),
	}, &work.Options{Owner: name, Slots: 1, TTL: ttl})
}

// frozen does the same work verb by verb, as an agent in any language could, so
// that every answer can be seen. It never checks its deadline: nothing depends
// on that.
func frozen(ctx context.Context, ledger work.Ledger, name, folder string) error {
	secret := tenure.NewSecret()
	items, err := ledger.Claim(ctx, work.Claim{
		Queues: []string{queue}, Limit: 1, Secret: secret, Owner: name, TTL: ttl,
	})
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return errors.New("there is nothing to do")
	}
	item := items[0]
	var a assignment
	if err := json.Unmarshal(item.Payload, &a); err != nil {
		return err
	}
	region := a.Region
	says(os.Stdout, name, "takes %q under token %d", region, item.Record.Token)

	// Every write about the item carries the token of the claim. If the outcome
	// is unknown, the agent sends the request again: several copies have the
	// effect of one.
	ask := func(req work.Request) error {
		req.ID, req.Token, req.Secret = item.ID, item.Record.Token, secret
		for {
			err := ledger.Apply(ctx, []work.Request{req})[0].Err
			if !errors.Is(err, work.ErrUnknown) || ctx.Err() != nil {
				return err
			}
		}
	}
	if err := ask(work.Request{Verb: work.Checkpoint, State: research(region, name)}); err != nil {
		return err
	}
	says(os.Stdout, name, "has done the research, and saves it for whoever may have to go on")

	if err := freeze(); err != nil {
		return err
	}

	says(os.Stdout, name, "goes on as if nothing had happened")
	says(os.Stdout, name, "publishes %q: %s", region, outcome(publish(ctx, folder, region, name, item.Record.Stamp())))
	says(os.Stdout, name, "reports progress: %s", outcome(ask(work.Request{Verb: work.Report, Progress: "published"})))
	done, err := result(region, name)
	if err != nil {
		return err
	}
	says(os.Stdout, name, "completes %q, with a message to the newsroom: %s", region, outcome(ask(work.Request{
		Verb: work.Complete, Result: done.Body, Effects: done.Effects,
	})))
	return nil
}

// outcome says how a write ended.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, croft.ErrStale):
		return "REFUSED, " + strings.TrimPrefix(err.Error(), "write refused: ")
	}
	return err.Error()
}

// research is the first half of a report, and worth saving.
func research(region, name string) []byte {
	return fmt.Appendf(nil, "the research of %s, by %s", region, name)
}

// result completes a report: with its result, and one message to the newsroom.
// The ledger writes both in one step. A refused completion sends no message.
func result(region, name string) (work.Result, error) {
	done, err := work.JSON(message{Region: region, By: name})
	done.Effects = []work.Emission{{Name: "published", To: "newsroom", Body: done.Body}}
	return done, err
}

func reportPath(folder, region string) string { return filepath.Join(folder, region+".txt") }

// publish writes the report to a guarded file. The file itself remembers the
// newest token that it has admitted, and refuses older ones.
func publish(ctx context.Context, folder, region, name string, stamp croft.Stamp) error {
	file, err := file.Open(reportPath(folder, region), nil)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(ctx, stamp, strings.NewReader(fmt.Sprintf("the report on %s, by %s", region, name)))
	return err
}
