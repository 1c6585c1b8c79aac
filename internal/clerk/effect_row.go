package clerk

import (
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// Effect is the row of an effect.
type Effect struct {
	Item       string `json:"item"`
	Generation int    `json:"generation"`
	Name       string `json:"name"`
	Queue      string `json:"queue"`
	To         string `json:"dest"`
	Body       Bytes  `json:"body"`
	AtMostOnce bool   `json:"at_most_once"`
	Token      int64  `json:"token"`
	Grant      string `json:"grant_id"`
	Owner      string `json:"owner"`
	State      string `json:"state"`
	Attempts   int    `json:"attempts"`
	Ready      int64  `json:"ready"`
	Sender     int64  `json:"sender"`
	Created    int64  `json:"created"`
	Settled    *int64 `json:"settled"`
	Error      string `json:"error"`
	Actor      string `json:"actor"`
	Note       string `json:"note"`
}

// EffectRow converts an effect to its row.
func EffectRow(e work.Effect) Effect {
	return Effect{
		Item: string(e.Item), Generation: e.Generation, Name: e.Name, Queue: e.Queue, To: e.To, Body: e.Body,
		AtMostOnce: e.AtMostOnce, Token: int64(e.Token), Grant: string(e.Grant), Owner: e.Owner,
		State: string(e.State), Attempts: e.Attempts, Ready: e.Ready.UnixMicro(), Sender: int64(e.Sender),
		Created: e.Created.UnixMicro(), Settled: Micro(e.Settled), Error: e.Error, Actor: e.Actor, Note: e.Note,
	}
}

// Read converts the row to an effect.
func (row Effect) Read() work.Effect {
	return work.Effect{
		EffectID: work.EffectID{Item: work.ID(Plain(row.Item)), Generation: row.Generation, Name: row.Name},
		Queue:    row.Queue, To: row.To, Body: row.Body, AtMostOnce: row.AtMostOnce,
		Token: fence.Token(row.Token), Grant: fence.Grant(Plain(row.Grant)), Owner: row.Owner,
		State: work.EffectState(row.State), Attempts: row.Attempts, Ready: Time(&row.Ready),
		Sender: fence.Token(row.Sender), Created: Time(&row.Created), Settled: Time(row.Settled),
		Error: row.Error, Actor: row.Actor, Note: row.Note,
	}
}

// Refusal is the row of a refusal.
type Refusal struct {
	At             int64  `json:"at"`
	Item           string `json:"item"`
	Queue          string `json:"queue"`
	Verb           string `json:"verb"`
	Why            string `json:"why"`
	Presented      int64  `json:"presented"`
	PresentedGrant string `json:"presented_grant"`
	PresentedOwner string `json:"presented_owner"`
	Newest         int64  `json:"newest"`
	NewestGrant    string `json:"newest_grant"`
	NewestOwner    string `json:"newest_owner"`
}

// RefusalRow converts a refusal to its row.
func RefusalRow(r work.Refusal) Refusal {
	return Refusal{
		At: r.At.UnixMicro(), Item: string(r.Item), Queue: r.Queue, Verb: string(r.Verb), Why: r.Why,
		Presented: int64(r.Presented), PresentedGrant: string(r.PresentedGrant), PresentedOwner: r.PresentedOwner,
		Newest: int64(r.Newest), NewestGrant: string(r.NewestGrant), NewestOwner: r.NewestOwner,
	}
}

// Read converts the row to a refusal.
func (row Refusal) Read() work.Refusal {
	return work.Refusal{
		At: Time(&row.At), Item: work.ID(row.Item), Queue: row.Queue, Verb: work.Verb(row.Verb), Why: row.Why,
		Presented: fence.Token(row.Presented), PresentedGrant: fence.Grant(row.PresentedGrant),
		PresentedOwner: row.PresentedOwner, Newest: fence.Token(row.Newest),
		NewestGrant: fence.Grant(row.NewestGrant), NewestOwner: row.NewestOwner,
	}
}
