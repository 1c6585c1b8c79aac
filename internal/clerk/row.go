package clerk

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// ErrDamaged is matched by errors about a row that the law could not have made.
// Somebody has changed it by hand. Nothing is decided from it.
var ErrDamaged = errors.New("damaged row")

// DamagedError names such a row, so that the others can go on without it. It
// must not match fence.ErrInvalid, as the record's own error does: the caller's
// input was good.
type DamagedError struct {
	Item   work.ID
	Unique Unique // its idempotency key, if it has one
	Ready  time.Time
	Why    string

	Partition string // the one it is in, if any
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%v: item %s: %s; delete it from the table of items if it may be forgotten",
		ErrDamaged, e.Item, e.Why)
}

// Is makes every DamagedError match ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Damage lists the damaged rows among those read.
type Damage []*DamagedError

// Err returns the damage as one error, or nil if there is none.
func (d Damage) Err() error {
	all := make([]error, len(d))
	for i, e := range d {
		all[i] = e
	}
	return errors.Join(all...)
}

// Sound reads one row and appends it to items or, if it is damaged, to damage.
func Sound(row Item, items []work.Item, damage Damage) ([]work.Item, Damage) {
	it, err := row.Read()
	if err != nil {
		return items, append(damage, err)
	}
	return append(items, it), damage
}

// Item is the row of an item. Times are in microseconds since 1970, durations
// in microseconds. Missing values are nil. The JSON names are those of the
// columns. Token is nil until the item has a record.
type Item struct {
	ID           string  `json:"id"`
	Queue        string  `json:"queue"`
	Unique       *string `json:"uniq"`
	State        string  `json:"state"`
	Priority     int     `json:"priority"`
	Ready        int64   `json:"ready"`
	Created      int64   `json:"created"`
	Finished     *int64  `json:"finished"`
	Attempts     int     `json:"attempts"`
	Tries        int     `json:"tries"`
	Generation   int     `json:"generation"`
	Payload      Bytes   `json:"payload"`
	Checkpoint   Bytes   `json:"checkpoint"`
	CheckpointAt *int64  `json:"checkpoint_at"`
	Result       Bytes   `json:"result"`
	Error        string  `json:"error"`

	Token      *int64          `json:"token"`
	Grant      *string         `json:"grant_id"`
	Owner      string          `json:"owner"`
	Instance   string          `json:"instance"`
	Held       string          `json:"held"` // the state of the record
	Cause      string          `json:"cause"`
	Ended      string          `json:"ended"`
	Actor      string          `json:"actor"`
	Note       string          `json:"note"`
	Acquired   *int64          `json:"acquired"`
	Renewed    *int64          `json:"renewed"`
	Deadline   *int64          `json:"deadline"`
	TTL        *int64          `json:"ttl"`
	Progress   string          `json:"progress"`
	ProgressAt *int64          `json:"progress_at"`
	Terms      int64           `json:"terms"`
	Past       json.RawMessage `json:"past"`

	Guards    json.RawMessage `json:"guards"`
	Partition string          `json:"partition"`
}

// Bytes are bytes in PostgreSQL's JSON form.
type Bytes []byte

// MarshalJSON writes \x and hex digits, or null if there are no bytes.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if len(b) == 0 {
		return []byte("null"), nil
	}
	text := make([]byte, 0, 2*len(b)+5)
	text = append(text, '"', '\\', '\\', 'x')
	return append(hex.AppendEncode(text, b), '"'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*b = nil
		return nil
	}
	digits, found := strings.CutPrefix(strings.TrimSuffix(string(text), `"`), `"\\x`)
	if !found {
		return fmt.Errorf("bytes that do not begin with \\x: %.40q", text)
	}
	read, err := hex.DecodeString(digits)
	if len(read) > 0 {
		*b = read
	}
	return err
}

// term is one term of the record's history, in the column past.
type term struct {
	Token    int64  `json:"token"`
	Grant    string `json:"grant"`
	Owner    string `json:"owner"`
	Instance string `json:"instance"`
	State    string `json:"state"`
	Cause    string `json:"cause"`
	Actor    string `json:"actor"`
	Note     string `json:"note"`
	Acquired int64  `json:"acquired"`
	Finished int64  `json:"finished"`
	Ended    string `json:"ended"`
}

// Row converts an item to its row.
func Row(it work.Item) (Item, error) {
	rec := it.Record
	row := Item{
		ID: string(it.ID), Queue: it.Queue, State: string(it.State), Priority: it.Priority,
		Ready: it.Ready.UnixMicro(), Created: it.Created.UnixMicro(),
		Finished: Micro(it.Finished), Attempts: it.Attempts, Tries: it.Limit, Generation: it.Generation,
		Payload: it.Payload, Checkpoint: it.Checkpoint, CheckpointAt: Micro(it.CheckpointAt),
		Result: it.Result, Error: it.Error, Partition: it.Partition,
	}
	if it.Unique != "" {
		row.Unique = &it.Unique
	}
	if len(it.Guards) > 0 {
		row.Guards = List(it.Guards)
	}
	if rec.IsZero() {
		return row, nil
	}
	token, grant, ttl := int64(rec.Token), string(rec.Grant), int64(rec.TTL/time.Microsecond)
	row.Token, row.Grant, row.Owner, row.Instance, row.Held = &token, &grant, rec.Owner, rec.Instance, string(rec.State)
	row.Cause, row.Ended, row.Actor, row.Note = string(rec.Cause), string(rec.Ended), rec.Actor, rec.Note
	row.Acquired, row.Renewed, row.Deadline, row.TTL = Micro(rec.Acquired), Micro(rec.Renewed),
		Micro(rec.Deadline), &ttl
	row.Progress, row.ProgressAt, row.Terms = rec.Progress, Micro(rec.ProgressAt), rec.Terms
	var past []term
	for _, t := range terms.Past(rec) {
		past = append(past, term{
			Token: int64(t.Token), Grant: string(t.Grant), Owner: t.Owner, Instance: t.Instance,
			State: string(t.State), Cause: string(t.Cause),
			Actor: t.Actor, Note: t.Note, Acquired: t.Acquired.UnixMicro(), Finished: t.Finished.UnixMicro(),
			Ended: string(t.Ended),
		})
	}
	if past == nil {
		return row, nil
	}
	var err error
	row.Past, err = json.Marshal(past)
	return row, err
}

// Read converts the row to an item, and checks its record.
func (row Item) Read() (work.Item, *DamagedError) {
	it := work.Item{
		ID: work.ID(Plain(row.ID)), Queue: row.Queue, State: work.State(row.State), Priority: row.Priority,
		Ready: Time(&row.Ready), Created: Time(&row.Created),
		Finished: Time(row.Finished), Attempts: row.Attempts, Limit: row.Tries, Generation: row.Generation,
		Payload: row.Payload, Checkpoint: row.Checkpoint, CheckpointAt: Time(row.CheckpointAt),
		Result: row.Result, Error: row.Error, Partition: row.Partition,
	}
	if row.Unique != nil {
		it.Unique = *row.Unique
	}
	var err error
	if it.Guards, err = guardsIn(row.Guards); err != nil {
		return it, damaged(it, fmt.Errorf("its guards: %w", err))
	}
	if row.Token == nil {
		return it, nil
	}
	if row.Grant == nil || row.TTL == nil {
		return it, damaged(it, errors.New("its record has no grant or no TTL"))
	}
	rec := tenure.Record{
		Key: it.Key(), Token: fence.Token(*row.Token), Grant: fence.Grant(Plain(*row.Grant)),
		Owner: row.Owner, Instance: row.Instance, State: tenure.State(row.Held),
		Cause: tenure.Cause(row.Cause), Ended: tenure.End(row.Ended), Actor: row.Actor, Note: row.Note,
		Acquired: Time(row.Acquired), Renewed: Time(row.Renewed), Deadline: Time(row.Deadline),
		TTL: time.Duration(*row.TTL) * time.Microsecond, Progress: row.Progress,
		ProgressAt: Time(row.ProgressAt), Terms: row.Terms,
	}
	var past []tenure.Term
	if len(row.Past) > 0 && string(row.Past) != "null" {
		if past, err = Terms(row.Past); err != nil {
			return it, damaged(it, fmt.Errorf("its past: %w", err))
		}
	}
	it.Record = terms.Join(rec, past)
	if err := it.Record.Check(); err != nil {
		return it, damaged(it, err)
	}
	return it, nil
}

// List is how rows keep a list of texts.
func List(texts []string) json.RawMessage {
	text, err := json.Marshal(texts)
	if err != nil {
		panic(err) // strings always have JSON
	}
	return text
}

// guardsIn reads the targets that a row keeps as JSON.
func guardsIn(text json.RawMessage) (targets []string, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &targets); err != nil {
		return nil, err
	}
	return targets, tenure.CheckGuards(targets)
}

// Terms reads the terms that a row keeps as JSON.
func Terms(text []byte) ([]tenure.Term, error) {
	var past []term
	if err := json.Unmarshal(text, &past); err != nil {
		return nil, err
	}
	terms := make([]tenure.Term, len(past), len(past)+1) // room for the newest, which is in the record
	for i, t := range past {
		terms[i] = tenure.Term{
			Token: fence.Token(t.Token), Grant: fence.Grant(Plain(t.Grant)), Owner: t.Owner,
			Instance: t.Instance, State: tenure.State(t.State), Cause: tenure.Cause(t.Cause),
			Actor: t.Actor, Note: t.Note, Acquired: time.UnixMicro(t.Acquired).UTC(),
			Finished: time.UnixMicro(t.Finished).UTC(), Ended: tenure.End(t.Ended),
		}
	}
	return terms, nil
}

func damaged(it work.Item, err error) *DamagedError {
	return &DamagedError{
		Item: it.ID, Unique: Unique{it.Queue, it.Unique}, Ready: it.Ready, Why: err.Error(), Partition: it.Partition,
	}
}

// Micro converts a time to the form that rows keep.
func Micro(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// Time converts a time that a row keeps.
func Time(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us).UTC()
}

// Plain removes the dashes with which PostgreSQL writes 128-bit names.
func Plain(id string) string { return strings.ReplaceAll(id, "-", "") }
