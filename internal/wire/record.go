package wire

import (
	"time"

	"github.com/croft-dev/croft/tenure"
)

// Record writes a record as stores keep it.
func Record(rec tenure.Record) []byte { return encode(rec) }

// ReadRecord reads a record. It skips members that it does not know.
func ReadRecord(data []byte) (rec tenure.Record, err error) {
	err = read(data, false, func(r *reader) error { return r.record(&rec) })
	return rec, err
}

// Moment writes a time, alone in an object.
func Moment(now time.Time) []byte {
	return encode(struct {
		Now time.Time `json:"now"`
	}{now})
}

// ReadMoment reads what Moment wrote.
func ReadMoment(data []byte) (now time.Time, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "now" {
				return false, nil
			}
			return true, r.moment(&now)
		})
	})
	return now, err
}

// KeyEvent writes the data of an event about a key.
func KeyEvent(key string) []byte {
	return encode(struct {
		Key string `json:"key"`
	}{key})
}

// ReadKeyEvent reads what KeyEvent wrote.
func ReadKeyEvent(data []byte) (key string, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "key" {
				return false, nil
			}
			return true, text(r, &key)
		})
	})
	return key, err
}

func (r *reader) record(rec *tenure.Record) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "key":
			err = text(r, &rec.Key)
		case "token":
			err = whole(r, &rec.Token)
		case "grant":
			err = text(r, &rec.Grant)
		case "owner":
			err = text(r, &rec.Owner)
		case "instance":
			err = text(r, &rec.Instance)
		case "state":
			err = text(r, &rec.State)
		case "cause":
			err = text(r, &rec.Cause)
		case "ended":
			err = text(r, &rec.Ended)
		case "actor":
			err = text(r, &rec.Actor)
		case "note":
			err = text(r, &rec.Note)
		case "acquired":
			err = r.moment(&rec.Acquired)
		case "renewed":
			err = r.moment(&rec.Renewed)
		case "deadline":
			err = r.moment(&rec.Deadline)
		case "ttl":
			err = r.duration(&rec.TTL)
		case "every":
			err = r.duration(&rec.Every)
		case "succeeded":
			err = r.moment(&rec.Succeeded)
		case "grid":
			err = r.moment(&rec.Grid)
		case "hold_until":
			err = r.moment(&rec.HoldUntil)
		case "guards":
			err = r.texts(maxGuards, &rec.Guards)
		case "progress":
			err = text(r, &rec.Progress)
		case "progress_at":
			err = r.moment(&rec.ProgressAt)
		case "checkpoint":
			err = r.bytes(&rec.Checkpoint)
		case "terms":
			err = whole(r, &rec.Terms)
		case "history":
			err = r.list(tenure.HistoryLen, func() error {
				var t tenure.Term
				err := r.term(&t)
				rec.History = append(rec.History, t)
				return err
			})
		default:
			return false, nil
		}
		return true, err
	})
}

func (r *reader) term(t *tenure.Term) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "token":
			err = whole(r, &t.Token)
		case "grant":
			err = text(r, &t.Grant)
		case "owner":
			err = text(r, &t.Owner)
		case "instance":
			err = text(r, &t.Instance)
		case "state":
			err = text(r, &t.State)
		case "cause":
			err = text(r, &t.Cause)
		case "actor":
			err = text(r, &t.Actor)
		case "note":
			err = text(r, &t.Note)
		case "acquired":
			err = r.moment(&t.Acquired)
		case "finished":
			err = r.moment(&t.Finished)
		case "ended":
			err = text(r, &t.Ended)
		default:
			return false, nil
		}
		return true, err
	})
}
