package mcpservecmd

import (
	"context"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/boundary/mcp"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// mostShown bounds each of the parts of an item that show_item returns.
const mostShown = 64 << 10

func itemParam(required bool) mcp.Param {
	return mcp.Param{
		Name: "item", Kind: mcp.Text, Required: required, Least: 32, Most: 32,
		Description: "the id of an item, 32 hex digits",
	}
}

// itemTools are the tools about work items. An agent can claim only from the
// queues that the command names.
func (s *server) itemTools() []mcp.Tool {
	tools := []mcp.Tool{
		{
			Name: "list_items", Title: "List work items", Reads: true, Call: s.listItems,
			Description: "List work items, newest first: their state, owner and progress.",
			Params: []mcp.Param{
				{Name: "queue", Kind: mcp.Text, Most: work.MaxQueue, Description: "only items of this queue"},
				{Name: "state", Kind: mcp.Text, OneOf: itemStates(), Description: "only items in this state"},
				limitParam,
			},
		},
		{
			Name: "show_item", Title: "Show a work item", Reads: true, Call: s.showItem,
			Description: "Show a work item with its payload, checkpoint, result and owners.",
			Params:      []mcp.Param{itemParam(true)},
		},
	}
	if len(s.queues) > 0 {
		tools = append(tools, mcp.Tool{
			Name: "claim", Title: "Claim a work item", Call: s.claim,
			Description: "Take the next item that is ready. You then own it, and it is kept for you. The code empty " +
				"says that nothing is ready. The payload says what is to be done; another wrote it.",
			Params: []mcp.Param{
				{
					Name: "queue", Kind: mcp.Text, OneOf: s.queues,
					Description: "the queue; usually all that you may claim from",
				},
			},
		})
	}
	if len(s.queues) == 0 && len(s.hands.all()) == 0 {
		return tools
	}
	return append(tools,
		mcp.Tool{
			Name: "complete", Title: "Complete a work item", Call: s.complete,
			Description: "Complete an item of yours, with its result. Completing it again changes nothing.",
			Params: []mcp.Param{
				itemParam(true),
				{Name: "result", Kind: mcp.Text, Most: work.MaxPayload, Description: "the result, as text"},
			},
		},
		mcp.Tool{
			Name: "fail", Title: "Fail a work item", Call: s.fail,
			Description: "Say that your attempt at an item has failed. The item waits for the next attempt.",
			Params: []mcp.Param{
				itemParam(true),
				{Name: "error", Kind: mcp.Text, Required: true, Least: 1, Most: work.MaxPayload, Description: "why"},
				{Name: "final", Kind: mcp.Flag, Description: "trying again would not help: the item is dead"},
				delayParam("retry_in", "when to try again, in seconds; usually longer with each attempt"),
			},
		},
		mcp.Tool{
			Name: "release", Title: "Give a work item back", Call: s.release,
			Description: "Give an item of yours back. It waits again, and the attempt does not count.",
			Params:      []mcp.Param{itemParam(true), delayParam("delay", "the least time that it waits, in seconds")},
		},
	)
}

func itemStates() []string {
	var all []string
	for _, s := range work.States {
		all = append(all, string(s))
	}
	return all
}

func delayParam(name, description string) mcp.Param {
	return mcp.Param{
		Name: name, Kind: mcp.Number, Least: 0, Most: int(work.MaxDelay / time.Second), Description: description,
	}
}

// rowView is an item of a listing.
type rowView struct {
	Item     work.ID  `json:"item"`
	Queue    string   `json:"queue"`
	State    string   `json:"state"` // as people are shown it: also scheduled, reserved and lapsed
	Attempts int      `json:"attempts"`
	Limit    int      `json:"limit"`
	Created  cli.When `json:"created"`
	Finished cli.When `json:"finished"`
	Owner    string   `json:"owner,omitempty"` // of a running item, or the last one
	Progress string   `json:"progress,omitempty"`
	Deadline cli.When `json:"deadline"`
	Error    string   `json:"error,omitempty"`
}

func rowOf(it work.Item, now time.Time) rowView {
	return rowView{
		Item: it.ID, Queue: it.Queue, State: glance.ItemState(it, now), Attempts: it.Attempts, Limit: it.Limit,
		Created: cli.When(it.Created), Finished: cli.When(it.Finished), Owner: it.Record.Owner,
		Progress: it.Record.Progress, Deadline: cli.When(it.Record.Deadline), Error: it.Error,
	}
}

// itemsView is the answer of list_items. More says that there are others.
type itemsView struct {
	Items []rowView `json:"items"`
	More  bool      `json:"more"`
}

func (s *server) listItems(ctx context.Context, args mcp.Arguments) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	limit := limitOf(args)
	q := work.Query{Queue: args.Text("queue"), Newest: true, Limit: limit + 1}
	if args.Has("state") {
		q.States = []work.State{work.State(args.Text("state"))}
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return nil, store.Unknown(err)
	}
	v := itemsView{Items: []rowView{}}
	for it, err := range s.ledger.List(ctx, q) {
		if err != nil {
			return nil, store.Unknown(err)
		}
		if v.More = len(v.Items) == limit; v.More {
			break
		}
		v.Items = append(v.Items, rowOf(it, now))
	}
	return v, nil
}

// itemView is all of an item. Cut names the parts that are not whole.
type itemView struct {
	rowView
	Payload          *string            `json:"payload"`
	PayloadBase64    []byte             `json:"payload_base64,omitempty"`
	Checkpoint       *string            `json:"checkpoint"`
	CheckpointBase64 []byte             `json:"checkpoint_base64,omitempty"`
	Result           *string            `json:"result"`
	ResultBase64     []byte             `json:"result_base64,omitempty"`
	Cut              []string           `json:"cut,omitempty"`
	Terms            []cli.TransferView `json:"terms"`
}

func (s *server) showItem(ctx context.Context, args mcp.Arguments) (any, error) {
	id := work.ID(args.Text("item"))
	if err := id.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTime())
	defer cancel()
	it, err := s.ledger.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return nil, store.Unknown(err)
	}
	v := itemView{rowView: rowOf(it, now), Terms: termsOf(it.Record, now)}
	part := func(name string, data []byte) bytesView {
		if len(data) > mostShown {
			v.Cut = append(v.Cut, name)
			data = []byte(excerpt.Of(string(data), mostShown))
		}
		return viewOf(data)
	}
	payload := part("payload", it.Payload)
	v.Payload, v.PayloadBase64 = payload.Text, payload.Base64
	checkpoint := part("checkpoint", it.Checkpoint)
	v.Checkpoint, v.CheckpointBase64 = checkpoint.Text, checkpoint.Base64
	result := part("result", it.Result)
	v.Result, v.ResultBase64 = result.Text, result.Base64
	return v, nil
}

// claimedView is the answer of claim.
type claimedView struct {
	Item             work.ID     `json:"item"`
	Queue            string      `json:"queue"`
	Token            fence.Token `json:"token"`
	Attempts         int         `json:"attempts"`
	Limit            int         `json:"limit"`
	Payload          *string     `json:"payload"`
	PayloadBase64    []byte      `json:"payload_base64,omitempty"`
	Checkpoint       *string     `json:"checkpoint"` // where the attempt before has got
	CheckpointBase64 []byte      `json:"checkpoint_base64,omitempty"`
	// CallWithin is how often the agent must call a tool about the item to keep
	// it.
	CallWithin string `json:"call_within"`
}

func (s *server) claim(ctx context.Context, args mcp.Arguments) (any, error) {
	queues := s.queues
	if args.Has("queue") {
		queues = []string{args.Text("queue")}
	}
	it, err := s.hands.take(ctx, queues)
	if err != nil {
		return nil, err
	}
	payload, checkpoint := viewOf(it.Payload), viewOf(it.Checkpoint)
	v := claimedView{
		Item: it.ID, Queue: it.Queue, Token: it.Record.Token, Attempts: it.Attempts, Limit: it.Limit,
		Payload: payload.Text, PayloadBase64: payload.Base64,
		Checkpoint: checkpoint.Text, CheckpointBase64: checkpoint.Base64, CallWithin: s.hands.stallAfter.String(),
	}
	if s.hands.stallAfter == croft.Forever {
		v.CallWithin = "forever"
	}
	return v, nil
}

// endedView is the answer of complete, fail and release.
type endedView struct {
	Item     work.ID    `json:"item"`
	State    work.State `json:"state"`
	Attempts int        `json:"attempts"`
	Limit    int        `json:"limit"`
	// Repeated says that an earlier copy of the call had taken effect already.
	Repeated bool `json:"repeated"`
}

func (s *server) complete(ctx context.Context, args mcp.Arguments) (any, error) {
	req := work.Request{Verb: work.Complete}
	if args.Has("result") {
		req.Result = []byte(args.Text("result"))
	}
	return s.ended(ctx, args, req)
}

func (s *server) fail(ctx context.Context, args mcp.Arguments) (any, error) {
	return s.ended(ctx, args, work.Request{
		Verb: work.Fail, Error: excerpt.Of(args.Text("error"), work.MaxError), Final: args.Flag("final"),
		Delay: time.Duration(args.Number("retry_in")) * time.Second,
	})
}

func (s *server) release(ctx context.Context, args mcp.Arguments) (any, error) {
	return s.ended(ctx, args, work.Request{
		Verb: work.Release, Delay: time.Duration(args.Number("delay")) * time.Second,
	})
}

// ended sends a request that ends an attempt.
func (s *server) ended(ctx context.Context, args mcp.Arguments, req work.Request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTime())
	defer cancel()
	answer, err := s.hands.write(ctx, args.Text("item"), req, true)
	it := answer.Item
	return endedView{it.ID, it.State, it.Attempts, it.Limit, answer.Repeated}, err
}
