package postgres

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrDamaged is matched by the error about a row that the law cannot have
// written: somebody has changed it by hand. The store decides nothing from such
// a row.
var ErrDamaged = store.ErrDamaged

// apart separates the fields of a packed record. No field contains it, because
// requests with such a character are refused.
const apart = "\x1f"

// The fields of a packed record, in the order in which croft.pack writes them.
const (
	fToken = iota
	fGrant
	fOwner
	fInstance
	fState
	fCause
	fEnded
	fActor
	fNote
	fAcquired
	fRenewed
	fDeadline
	fTTL
	fEvery
	fSucceeded
	fGrid
	fHoldUntil
	fGuards
	fProgress
	fProgressAt
	fCheckpoint // in base64
	fTerms
	fAwaited // not part of the record: whether somebody may wait for the key
	fields   // the number of fields
)

// unpack reads a packed record. past is its history as croft.past_of writes it,
// or empty for a record without history.
func unpack(key string, f []string, past string) (tenure.Record, error) {
	if len(f) != fields {
		return tenure.Record{}, damaged(key, fmt.Errorf("it has %d fields and not %d", len(f), fields))
	}
	n := numbers{f: f}
	rec := tenure.Record{
		Key: key, Token: fence.Token(n.at(fToken)), Grant: fence.Grant(f[fGrant]),
		Owner: f[fOwner], Instance: f[fInstance], State: tenure.State(f[fState]), Cause: tenure.Cause(f[fCause]),
		Ended: tenure.End(f[fEnded]), Actor: f[fActor], Note: f[fNote],
		Acquired: n.time(fAcquired), Renewed: n.time(fRenewed), Deadline: n.time(fDeadline),
		TTL: n.duration(fTTL), Every: n.duration(fEvery),
		Succeeded: n.time(fSucceeded), Grid: n.time(fGrid), HoldUntil: n.time(fHoldUntil),
		Progress: f[fProgress], ProgressAt: n.time(fProgressAt), Terms: n.at(fTerms),
	}
	if n.err != nil {
		return tenure.Record{}, damaged(key, n.err)
	}
	state, err := base64.StdEncoding.DecodeString(f[fCheckpoint])
	if err != nil {
		return tenure.Record{}, damaged(key, fmt.Errorf("its checkpoint: %w", err))
	}
	rec.Checkpoint = string(state)
	if f[fGuards] != "" {
		if err := json.Unmarshal([]byte(f[fGuards]), &rec.Guards); err != nil {
			return tenure.Record{}, damaged(key, fmt.Errorf("its guards: %w", err))
		}
	}
	if past == "" {
		return rec, nil
	}
	if rec.History, err = clerk.Terms([]byte(past)); err != nil {
		return tenure.Record{}, damaged(key, fmt.Errorf("its history: %w", err))
	}
	rec.History = append(rec.History, terms.Newest(&rec))
	if err := rec.Check(); err != nil {
		return tenure.Record{}, damaged(key, err)
	}
	return rec, nil
}

// unpackLast reads a packed record without its history, and checks it with its
// newest term alone.
func unpackLast(key, packed string) (tenure.Record, error) {
	rec, err := unpack(key, split(packed), "")
	if err != nil {
		return tenure.Record{}, err
	}
	whole := rec
	whole.History = []tenure.Term{terms.Newest(&rec)}
	if err := whole.Check(); err != nil {
		return tenure.Record{}, damaged(key, err)
	}
	return rec, nil
}

// numbers reads the fields that are numbers, and keeps the first error.
type numbers struct {
	f   []string
	err error
}

func (n *numbers) at(field int) int64 {
	v, err := strconv.ParseInt(n.f[field], 10, 64)
	if err != nil && n.err == nil {
		n.err = err
	}
	return v
}

// time reads a time. An empty field is the zero time.
func (n *numbers) time(field int) time.Time {
	if n.f[field] == "" {
		return time.Time{}
	}
	return fromMicro(n.at(field))
}

func (n *numbers) duration(field int) time.Duration {
	return time.Duration(n.at(field)) * time.Microsecond
}

// damaged makes the error about a row. It must not match fence.ErrInvalid as
// err does: the caller's input was good.
func damaged(key string, err error) error {
	return fmt.Errorf("%w: key %.200q: %s; delete its row from the table lease if the key may be forgotten",
		ErrDamaged, key, err.Error())
}

// split splits a packed text into its fields.
func split(text string) []string { return strings.Split(text, apart) }

// micro converts a duration to the server's microseconds.
func micro(d time.Duration) int64 { return int64(d / time.Microsecond) }

// fromMicro converts the server's microseconds to a time.
func fromMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }
