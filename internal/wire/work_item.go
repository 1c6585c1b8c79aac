package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Item writes an item as ledgers keep it.
func Item(it work.Item) []byte { return encode(it) }

// ReadItem reads an item. It skips members that it does not know.
func ReadItem(data []byte) (it work.Item, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) { return r.itemMember(name, &it) })
	})
	return it, err
}

// itemMember reads a member of an item.
func (r *reader) itemMember(name string, it *work.Item) (known bool, err error) {
	switch name {
	case "id":
		err = text(r, &it.ID)
	case "queue":
		err = text(r, &it.Queue)
	case "unique":
		err = text(r, &it.Unique)
	case "partition":
		err = text(r, &it.Partition)
	case "state":
		err = text(r, &it.State)
	case "priority":
		err = whole(r, &it.Priority)
	case "ready":
		err = r.moment(&it.Ready)
	case "created":
		err = r.moment(&it.Created)
	case "finished":
		err = r.moment(&it.Finished)
	case "attempts":
		err = whole(r, &it.Attempts)
	case "limit":
		err = whole(r, &it.Limit)
	case "generation":
		err = whole(r, &it.Generation)
	case "guards":
		err = r.texts(maxGuards, &it.Guards)
	case "payload":
		err = r.data(&it.Payload)
	case "checkpoint":
		err = r.data(&it.Checkpoint)
	case "checkpoint_at":
		err = r.moment(&it.CheckpointAt)
	case "result":
		err = r.data(&it.Result)
	case "error":
		err = text(r, &it.Error)
	case "record":
		err = r.record(&it.Record)
	default:
		return false, nil
	}
	return true, err
}

// Claimed is an item that a claim has got. Trimmed says that its payload and
// checkpoint are left out, because the answer would be too long: read the item.
type Claimed struct {
	work.Item
	Trimmed bool `json:"trimmed,omitempty"`
}

// stamped is how a claimed item is written: with the stamp of its owner's
// writes.
type stamped struct {
	Claimed
	Stamp string `json:"stamp"`
}

// ClaimedItems writes the answer to a claim.
func ClaimedItems(items []Claimed) []byte {
	written := make([]stamped, len(items))
	for i, it := range items {
		written[i] = stamped{it, it.Stamp().String()}
	}
	return encode(struct {
		Items []stamped `json:"items"`
	}{written})
}

// ReadClaimed reads the answer to a claim. It refuses a stamp of another grant.
func ReadClaimed(body []byte) (items []Claimed, err error) {
	err = read(body, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "items" {
				return false, nil
			}
			return true, r.list(work.MaxClaim, func() error {
				var it Claimed
				var written string
				err := r.object(func(name string) (bool, error) {
					switch name {
					case "stamp":
						return true, text(r, &written)
					case "trimmed":
						return true, r.truth(&it.Trimmed)
					}
					return r.itemMember(name, &it.Item)
				})
				if err == nil && written != "" {
					stamp, wrong := fence.ParseStamp(written)
					if it.Signature = stamp.Signature; wrong != nil || stamp != it.Stamp() {
						err = r.bad("its stamp is not that of the item's owner")
					}
				}
				items = append(items, it)
				return err
			})
		})
	})
	return items, err
}

// effectMember reads a member of an effect.
func (r *reader) effectMember(name string, e *work.Effect) (known bool, err error) {
	switch name {
	case "item":
		err = text(r, &e.Item)
	case "name":
		err = text(r, &e.Name)
	case "generation":
		err = whole(r, &e.Generation)
	case "queue":
		err = text(r, &e.Queue)
	case "to":
		err = text(r, &e.To)
	case "body":
		err = r.data(&e.Body)
	case "at_most_once":
		err = r.truth(&e.AtMostOnce)
	case "token":
		err = whole(r, &e.Token)
	case "grant":
		err = text(r, &e.Grant)
	case "owner":
		err = text(r, &e.Owner)
	case "state":
		err = text(r, &e.State)
	case "attempts":
		err = whole(r, &e.Attempts)
	case "ready":
		err = r.moment(&e.Ready)
	case "sender":
		err = whole(r, &e.Sender)
	case "created":
		err = r.moment(&e.Created)
	case "settled":
		err = r.moment(&e.Settled)
	case "error":
		err = text(r, &e.Error)
	case "actor":
		err = text(r, &e.Actor)
	case "note":
		err = text(r, &e.Note)
	default:
		return false, nil
	}
	return true, err
}

// refusalMember reads a member of a refusal that a ledger keeps.
func (r *reader) refusalMember(name string, f *work.Refusal) (known bool, err error) {
	switch name {
	case "at":
		err = r.moment(&f.At)
	case "item":
		err = text(r, &f.Item)
	case "queue":
		err = text(r, &f.Queue)
	case "verb":
		err = text(r, &f.Verb)
	case "why":
		err = text(r, &f.Why)
	case "presented":
		err = whole(r, &f.Presented)
	case "presented_grant":
		err = text(r, &f.PresentedGrant)
	case "presented_owner":
		err = text(r, &f.PresentedOwner)
	case "newest":
		err = whole(r, &f.Newest)
	case "newest_grant":
		err = text(r, &f.NewestGrant)
	case "newest_owner":
		err = text(r, &f.NewestOwner)
	default:
		return false, nil
	}
	return true, err
}

// statsMember reads a member of the state of a queue.
func (r *reader) statsMember(name string, s *work.Stats) (known bool, err error) {
	counts := map[string]*int64{
		"ready": &s.Ready, "scheduled": &s.Scheduled, "running": &s.Running, "lapsed": &s.Lapsed, "done": &s.Done,
		"dead": &s.Dead, "cancelled": &s.Cancelled, "effects_pending": &s.Pending, "effects_sent": &s.Sent,
		"effects_failed": &s.Failed, "effects_unknown": &s.Unknown, "refusals": &s.Refusals,
	}
	times := map[string]*time.Time{"oldest": &s.Oldest, "heartbeat": &s.Heartbeat, "progress": &s.Progress}
	switch {
	case name == "queue":
		return true, text(r, &s.Queue)
	case counts[name] != nil:
		return true, whole(r, counts[name])
	case times[name] != nil:
		return true, r.moment(times[name])
	}
	return false, nil
}

// Line writes a line of a listing: an item, an effect, a refusal or the state
// of a queue.
func Line[T work.Item | work.Effect | work.Refusal | work.Stats](v T) []byte { return encode(v) }

// LastWorkLine writes the last line of a listing that is not whole. Items and
// effects have a member "error" of their own, so it has another name.
func LastWorkLine(p Problem) []byte {
	return encode(struct {
		Problem Problem `json:"problem"`
	}{p})
}

// ReadItemLine reads a line of a listing of items. It returns the error of a
// last line.
func ReadItemLine(line []byte) (work.Item, error) { return readLine(line, (*reader).itemMember) }

// ReadEffectLine does the same for effects.
func ReadEffectLine(line []byte) (work.Effect, error) { return readLine(line, (*reader).effectMember) }

// ReadRefusalLine does the same for refusals.
func ReadRefusalLine(line []byte) (work.Refusal, error) {
	return readLine(line, (*reader).refusalMember)
}

// ReadStatsLine does the same for the states of queues.
func ReadStatsLine(line []byte) (work.Stats, error) { return readLine(line, (*reader).statsMember) }

// ErrLine says that a line of a listing is not as a server writes it.
var ErrLine = errors.New("the line cannot be read")

func readLine[T any](line []byte, member func(*reader, string, *T) (bool, error)) (v T, err error) {
	var p *Problem
	err = read(line, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name == "problem" {
				p = &Problem{}
				return true, r.problem(p)
			}
			return member(r, name, &v)
		})
	})
	var none T
	switch {
	case err != nil:
		return none, store.Unknown(fmt.Errorf("%w: %s", ErrLine, err.Error()))
	case p != nil:
		return none, p.LedgerErr()
	}
	return v, nil
}
