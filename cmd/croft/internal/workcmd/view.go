package workcmd

import (
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// rowView is an item of a listing in JSON. The names are those of work.Item.
type rowView struct {
	ID           work.ID         `json:"id"`
	Queue        string          `json:"queue"`
	Unique       string          `json:"unique"`
	Partition    string          `json:"partition"`
	State        work.State      `json:"state"`
	Priority     int             `json:"priority"`
	Ready        cli.When        `json:"ready"`
	Created      cli.When        `json:"created"`
	Finished     cli.When        `json:"finished"`
	Attempts     int             `json:"attempts"`
	Limit        int             `json:"limit"`
	Generation   int             `json:"generation"`
	Guards       []string        `json:"guards"`
	CheckpointAt cli.When        `json:"checkpoint_at"`
	Error        string          `json:"error"`
	Record       *cli.RecordView `json:"record"` // null before the first claim
}

func rowViewOf(it work.Item, now time.Time) rowView {
	v := rowView{
		ID: it.ID, Queue: it.Queue, Unique: it.Unique, Partition: it.Partition, State: it.State, Priority: it.Priority,
		Ready:    cli.When(it.Ready),
		Created:  cli.When(it.Created),
		Finished: cli.When(it.Finished), Attempts: it.Attempts, Limit: it.Limit, Generation: it.Generation,
		Guards: cli.Targets(it.Guards), CheckpointAt: cli.When(it.CheckpointAt), Error: it.Error,
	}
	if !it.Record.IsZero() {
		rec := cli.ViewOf(it.Record, now)
		// An item's owner keeps it after the deadline, until the ledger gives
		// it to another.
		rec.State = string(it.Record.State)
		v.Record = &rec
	}
	return v
}

// itemView is all of an item in JSON. Bytes are in base64.
type itemView struct {
	rowView
	Payload    []byte             `json:"payload"`
	Checkpoint []byte             `json:"checkpoint"`
	Result     []byte             `json:"result"`
	History    []cli.TransferView `json:"history"` // newest first
}

func itemViewOf(it work.Item, now time.Time) itemView {
	v := itemView{
		rowView: rowViewOf(it, now), Payload: it.Payload, Checkpoint: it.Checkpoint, Result: it.Result,
		History: []cli.TransferView{},
	}
	for i := len(it.Record.History) - 1; i >= 0; i-- {
		v.History = append(v.History, cli.TransferOf(it.Record, it.Record.History[i], now))
	}
	return v
}

// answerView is the outcome of a request in JSON. Result is set if the item was
// done already.
type answerView struct {
	ID         work.ID     `json:"id"`
	Queue      string      `json:"queue"`
	State      work.State  `json:"state"`
	Attempts   int         `json:"attempts"`
	Limit      int         `json:"limit"`
	Generation int         `json:"generation"`
	Token      fence.Token `json:"token"`
	Owner      string      `json:"owner"`
	Deadline   cli.When    `json:"deadline"`
	Repeated   bool        `json:"repeated"`
	Result     []byte      `json:"result,omitempty"`
}

func answerViewOf(answer work.Answer) answerView {
	it := answer.Item
	v := answerView{
		ID: it.ID, Queue: it.Queue, State: it.State, Attempts: it.Attempts, Limit: it.Limit, Generation: it.Generation,
		Token: it.Record.Token, Owner: it.Record.Owner, Deadline: cli.When(it.Record.Deadline),
		Repeated: answer.Repeated,
	}
	if answer.Repeated && it.State == work.Done {
		v.Result = it.Result
	}
	return v
}

// printAnswers prints the outcomes of requests. It prints every error but the
// last, and returns that one.
func (a *app) printAnswers(answers []work.Answer, text func(work.Answer) string) error {
	var failed error
	for _, answer := range answers {
		switch {
		case answer.Err != nil:
			if failed != nil {
				a.Fail(failed)
			}
			failed = answer.Err
		case a.JSON:
			a.Print(answerViewOf(answer))
		default:
			a.Confirm("%s", text(answer))
		}
	}
	return failed
}

// claimView is a claimed item in JSON: its lease, with the secret, and the data
// to work on.
type claimView struct {
	cli.LeaseView
	ID         work.ID `json:"id"`
	Queue      string  `json:"queue"`
	Attempts   int     `json:"attempts"`
	Limit      int     `json:"limit"`
	Generation int     `json:"generation"`

	Guards     []string `json:"guards"`
	Payload    []byte   `json:"payload"`
	Checkpoint []byte   `json:"checkpoint"`
}

func claimViewOf(it work.Item, secret tenure.Secret) claimView {
	return claimView{
		LeaseView: cli.LeaseOf(it.Deed(secret), it.Record), ID: it.ID, Queue: it.Queue, Attempts: it.Attempts,
		Limit: it.Limit, Generation: it.Generation, Guards: cli.Targets(it.Guards),
		Payload: it.Payload, Checkpoint: it.Checkpoint,
	}
}
