package wire

import (
	"errors"
	"slices"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
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

// Dropped writes how many records a sweep has dropped.
func Dropped(n int) []byte {
	return encode(struct {
		Dropped int `json:"dropped"`
	}{n})
}

// ReadDropped reads what Dropped wrote.
func ReadDropped(data []byte) (n int, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "dropped" {
				return false, nil
			}
			return true, whole(r, &n)
		})
	})
	return n, err
}

// Findings writes how fit a store is.
func Findings(all []store.Finding) []byte {
	return encode(struct {
		Findings []store.Finding `json:"findings"`
	}{all})
}

// maxFindings is more than any store has.
const maxFindings = 256

// ReadFindings reads what Findings wrote.
func ReadFindings(data []byte) (all []store.Finding, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name != "findings" {
				return false, nil
			}
			return true, r.list(maxFindings, func() error {
				var f store.Finding
				err := r.object(func(name string) (bool, error) {
					switch name {
					case "check":
						return true, text(r, &f.Check)
					case "level":
						return true, text(r, &f.Level)
					case "seen":
						return true, text(r, &f.Seen)
					case "advice":
						return true, text(r, &f.Advice)
					}
					return false, nil
				})
				all = append(all, f)
				return err
			})
		})
	})
	return all, err
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
	return r.object(func(name string) (bool, error) { return r.recordMember(name, rec) })
}

// recordMember reads a member of a record.
func (r *reader) recordMember(name string, rec *tenure.Record) (known bool, err error) {
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

// Lease writes the answer to a call on one key: the record after it without its
// history, and with it the store's time and the stamp of the holder's writes.
func Lease(a store.Answer) []byte {
	rec := a.Record
	rec.History = nil
	stamp := ""
	if rec.State == tenure.Held {
		s := rec.Stamp()
		s.Signature = a.Signature
		stamp = s.String()
	}
	more := encode(struct {
		Stamp string    `json:"stamp,omitempty"`
		Now   time.Time `json:"now"`
	}{stamp, a.Now})
	// Both are objects with members. One goes into the other, after its brace.
	text := append(Record(rec), more...)
	at := len(text) - len(more)
	text[at-1] = ','
	return append(text[:at], more[1:]...)
}

// History writes a record's transfers, the newest first.
func History(rec tenure.Record) []byte {
	terms := slices.Clone(rec.History)
	slices.Reverse(terms)
	return encode(struct {
		Key     string        `json:"key"`
		History []tenure.Term `json:"history"`
	}{rec.Key, terms})
}

// LastLine writes the last line of a listing that is not whole.
func LastLine(p Problem) []byte {
	return encode(struct {
		Error Problem `json:"error"`
	}{p})
}

// ReadLine reads a line of a listing. It returns the error of a last line.
func ReadLine(line []byte) (rec tenure.Record, err error) {
	var p *Problem
	err = read(line, false, func(r *reader) error {
		return r.object(func(name string) (bool, error) {
			if name == "error" {
				p = &Problem{}
				return true, r.problem(p)
			}
			return r.recordMember(name, &rec)
		})
	})
	if err == nil && p != nil {
		return tenure.Record{}, p.Err()
	}
	if err != nil {
		err = store.Unknown(errors.New(err.Error()))
	}
	return rec, err
}

// Verdict says of a stamp whether the store has issued it, and whether its
// owner is the current one. Why says why not. Newest is the key's newest token.
type Verdict struct {
	Key     string      `json:"key"`
	Token   fence.Token `json:"token"`
	Issued  bool        `json:"issued"`
	Current bool        `json:"current"`
	Why     tenure.Why  `json:"why,omitempty"`
	Newest  fence.Token `json:"newest,omitempty"`
}

// Bytes writes the verdict.
func (v Verdict) Bytes() []byte { return encode(v) }
