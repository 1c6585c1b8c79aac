package mcpservecmd

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/boundary/mcp"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// These bound what a listing returns.
const (
	usualRows = 50
	mostRows  = 500
)

// states are the states of a key.
var states = []string{"held", "free", "reserved", "hold", "period", "expired"}

var keyParam = mcp.Param{
	Name: "key", Kind: mcp.Text, Required: true, Least: 1, Most: fence.MaxKey,
	Description: "the name of the work, such as reports/daily",
}

var limitParam = mcp.Param{
	Name: "limit", Kind: mcp.Number, Least: 1, Most: mostRows, Description: "how many to list at most; usually 50",
}

// leaseTools are the tools about keys and the lease around this process.
func (s *server) leaseTools() []mcp.Tool {
	return []mcp.Tool{
		{
			Name: "my_work", Title: "Your own work", Reads: true, Call: s.myWork,
			Description: "Say who you are to others, which lease you work under and whether it is still yours, and " +
				"which items you have claimed.",
		},
		{
			Name: "who_owns", Title: "Who owns a key", Reads: true, Call: s.whoOwns,
			Description: "Say who owns a key, since when and until when, how far the work has got, and the checkpoint.",
			Params:      []mcp.Param{keyParam},
		},
		{
			Name: "list_keys", Title: "List keys", Reads: true, Call: s.listKeys,
			Description: "List keys: who holds what, and for how long.",
			Params: []mcp.Param{
				{Name: "prefix", Kind: mcp.Text, Most: fence.MaxKey, Description: "only keys that begin so"},
				{Name: "state", Kind: mcp.Text, OneOf: states, Description: "only keys in this state"},
				limitParam,
			},
		},
		{
			Name: "history", Title: "History of a key", Reads: true, Call: s.history,
			Description: "List the last owners of a key, newest first: why each got it, and how its term ended.",
			Params:      []mcp.Param{keyParam},
		},
		{
			Name: "report", Title: "Report progress", Call: s.report,
			Description: "Report how far the work has got, in one line that others see. Without item it is about the " +
				"lease that you work under.",
			Params: []mcp.Param{
				{
					Name: "marker", Kind: mcp.Text, Required: true, Least: 1, Most: tenure.MaxText,
					Description: `how far the work has got, such as "page 17 of 40"`,
				},
				itemParam(false),
			},
		},
		{
			Name: "checkpoint", Title: "Save a checkpoint", Call: s.checkpoint,
			Description: "Save where a successor shall begin. It replaces the checkpoint before it. Without item " +
				"it is for the lease that you work under, and has at most 1024 bytes unless that is of an item. " +
				"Everybody who can read the store can read it.",
			Params: []mcp.Param{
				{
					Name: "state", Kind: mcp.Text, Required: true, Most: work.MaxPayload,
					Description: "the checkpoint, as text",
				},
				itemParam(false),
			},
		},
	}
}

// bytesView shows bytes as text if they are text, and in base64 otherwise.
// Text that needs many escapes is in base64, too, which is shorter.
type bytesView struct {
	Text   *string
	Base64 []byte
}

func viewOf(data []byte) (v bytesView) {
	if text := string(data); utf8.Valid(data) {
		if encoded, err := json.Marshal(text); err == nil && len(encoded) <= 2*len(data)+64 {
			return bytesView{Text: &text}
		}
	}
	return bytesView{Base64: data}
}

// recordView is a record with its checkpoint as text.
type recordView struct {
	cli.RecordView
	Checkpoint       *string `json:"checkpoint"`
	CheckpointBase64 []byte  `json:"checkpoint_base64,omitempty"`
}

func recordOf(key string, rec tenure.Record, now time.Time) recordView {
	if rec.IsZero() {
		rec.Key, rec.State = key, tenure.Free
	}
	v := viewOf([]byte(rec.Checkpoint))
	return recordView{cli.ViewOf(rec, now), v.Text, v.Base64}
}

// record reads one key, with its history, and the store's time.
func (s *server) record(ctx context.Context, key string) (rec tenure.Record, now time.Time, err error) {
	if err := fence.CheckKey(key); err != nil {
		return rec, now, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTime())
	defer cancel()
	st := s.client.Store()
	if rec, err = st.Get(ctx, key); err == nil {
		now, err = st.Now(ctx)
	}
	if err != nil {
		err = store.Unknown(err)
	}
	return rec, now, err
}

// myWorkView is the answer of my_work.
type myWorkView struct {
	Owner string `json:"owner"`
	// Lease is the lease around this process: on a key, or on an item.
	Lease *leaseView `json:"lease"`
	Items []handView `json:"items"`
}

type leaseView struct {
	Key   string      `json:"key"`
	Token fence.Token `json:"token"`
	// Yours is false if another has the key by now, or nobody.
	Yours  bool        `json:"yours"`
	Record *recordView `json:"record,omitempty"`
}

type handView struct {
	Item  work.ID `json:"item"`
	Queue string  `json:"queue"`
	// Around says that the item is that of the lease around this process.
	Around bool   `json:"around"`
	Idle   string `json:"idle,omitempty"`
	Lost   string `json:"lost,omitempty"`
}

func (s *server) myWork(ctx context.Context, _ mcp.Arguments) (any, error) {
	v := myWorkView{Owner: s.Actor(), Items: []handView{}}
	for _, it := range s.hands.all() {
		h := handView{Item: it.id, Queue: it.queue, Around: it.around}
		if it.lost != nil {
			h.Lost = s.Redact(it.lost.Error())
		} else if !it.around {
			h.Idle = monotonic.Now().Sub(it.moved).Round(time.Second).String()
		}
		v.Items = append(v.Items, h)
	}
	if s.lease.Key == "" {
		return v, nil
	}
	v.Lease = &leaseView{Key: s.lease.Key, Token: s.lease.Token}
	if _, id, err := work.ItemOf(s.lease); err == nil {
		ctx, cancel := context.WithTimeout(ctx, s.callTime())
		defer cancel()
		it, err := s.ledger.Get(ctx, id)
		v.Lease.Yours = err == nil && it.State == work.Running && it.Record.Token == s.lease.Token
		return v, err
	}
	rec, now, err := s.record(ctx, s.lease.Key)
	if err != nil {
		return nil, err
	}
	view := recordOf(s.lease.Key, rec, now)
	v.Lease.Record, v.Lease.Yours = &view, rec.Alive(now) && rec.Stamp() == s.lease.Stamp()
	return v, nil
}

func (s *server) whoOwns(ctx context.Context, args mcp.Arguments) (any, error) {
	rec, now, err := s.record(ctx, args.Text("key"))
	if err != nil {
		return nil, err
	}
	return recordOf(args.Text("key"), rec, now), nil
}

// keysView is the answer of list_keys. More says that there are others.
type keysView struct {
	Keys []keyView `json:"keys"`
	More bool      `json:"more"`
}

type keyView struct {
	Key        string      `json:"key"`
	State      string      `json:"state"`
	Owner      string      `json:"owner"`
	Token      fence.Token `json:"token"`
	Acquired   cli.When    `json:"acquired"`
	Deadline   cli.When    `json:"deadline"`
	Progress   string      `json:"progress"`
	ProgressAt cli.When    `json:"progress_at"`
}

// limitOf returns how many rows a listing shows.
func limitOf(args mcp.Arguments) int {
	if args.Has("limit") {
		return args.Number("limit")
	}
	return usualRows
}

func (s *server) listKeys(ctx context.Context, args mcp.Arguments) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	st := s.client.Store()
	now, err := s.QuietNow(ctx, st)
	if err != nil {
		return nil, err
	}
	v, limit := keysView{Keys: []keyView{}}, limitOf(args)
	for rec, err := range cli.ListRecords(ctx, st, args.Text("prefix")) {
		if err != nil {
			return nil, store.Unknown(err)
		}
		state, _ := cli.StateOf(rec, cli.NowFor(rec, now))
		if only := args.Text("state"); only != "" && state != only {
			continue
		}
		if len(v.Keys) == limit {
			v.More = true
			break
		}
		v.Keys = append(v.Keys, keyView{
			Key: rec.Key, State: state, Owner: rec.Owner, Token: rec.Token, Acquired: cli.When(rec.Acquired),
			Deadline: cli.When(rec.Deadline), Progress: rec.Progress, ProgressAt: cli.When(rec.ProgressAt),
		})
	}
	return v, nil
}

// termsView is the answer of history.
type termsView struct {
	Key   string             `json:"key"`
	Terms []cli.TransferView `json:"terms"`
}

func (s *server) history(ctx context.Context, args mcp.Arguments) (any, error) {
	rec, now, err := s.record(ctx, args.Text("key"))
	if err != nil {
		return nil, err
	}
	return termsView{args.Text("key"), termsOf(rec, now)}, nil
}

// termsOf lists the terms of a record, newest first.
func termsOf(rec tenure.Record, now time.Time) []cli.TransferView {
	terms := []cli.TransferView{}
	for i := len(rec.History) - 1; i >= 0; i-- {
		terms = append(terms, cli.TransferOf(rec, rec.History[i], now))
	}
	return terms
}

// savedView is the answer of report and checkpoint.
type savedView struct {
	Key        string      `json:"key,omitempty"`
	Item       work.ID     `json:"item,omitempty"`
	Token      fence.Token `json:"token"`
	ProgressAt cli.When    `json:"progress_at,omitzero"`
	Deadline   cli.When    `json:"deadline"`
}

func (s *server) report(ctx context.Context, args mcp.Arguments) (any, error) {
	return s.save(ctx, args, work.Request{Verb: work.Report, Progress: args.Text("marker")},
		func(ctx context.Context) (tenure.Record, error) {
			return s.client.Report(ctx, s.lease, args.Text("marker"))
		})
}

func (s *server) checkpoint(ctx context.Context, args mcp.Arguments) (any, error) {
	state := []byte(args.Text("state"))
	if _, err := cli.ParseLease(string(state)); err == nil {
		return nil, cli.Invalid("checkpoint: this is a lease, whose secret everybody could read there")
	}
	return s.save(ctx, args, work.Request{Verb: work.Checkpoint, State: state},
		func(ctx context.Context) (tenure.Record, error) { return s.client.Save(ctx, s.lease, state) })
}

// save writes to the item that the agent names, or under the lease around this
// process, which is on an item or on a key.
func (s *server) save(
	ctx context.Context, args mcp.Arguments, req work.Request, onKey func(context.Context) (tenure.Record, error),
) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTime())
	defer cancel()
	item := args.Text("item")
	if !args.Has("item") {
		if s.lease.Key == "" {
			return nil, cli.Invalid("call: you work under no lease; name an item that you have claimed")
		}
		_, id, err := work.ItemOf(s.lease)
		if err != nil {
			rec, err := onKey(ctx)
			return savedView{
				Key: rec.Key, Token: rec.Token, ProgressAt: cli.When(rec.ProgressAt), Deadline: cli.When(rec.Deadline),
			}, err
		}
		item = string(id)
	}
	if s.ledger == nil {
		return nil, errNotInHand(item)
	}
	answer, err := s.hands.write(ctx, item, req, false)
	return savedView{
		Item: answer.Item.ID, Token: answer.Item.Record.Token, Deadline: cli.When(answer.Item.Record.Deadline),
	}, err
}
