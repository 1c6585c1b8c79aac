package objects

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// Format is the version of Body. A client that meets a newer version changes
// nothing.
const Format = 1

// MaxBody is the largest size of an object. Records are far smaller. Backends
// read one byte more, so that [Read] can refuse a longer object.
const MaxBody = 1 << 20

// Body is the content of an object, as JSON that people can read. Exactly one
// of Record and Dropped is set.
type Body struct {
	Format int `json:"croft"`
	// Nonce is new in every write. So no two bodies are equal, and no tag comes
	// back. A writer that lost its reply reads the object, and the nonce shows
	// whether the object is its own.
	Nonce  string         `json:"nonce"`
	Record *tenure.Record `json:"record,omitempty"`
	// Dropped announces that the object is about to be deleted. It is for
	// services without conditional deletes. The deleter sends a request that
	// the service itself refuses a short time after the announcement. Until
	// that time has passed, nobody writes a record there.
	Dropped *Dropped `json:"dropped,omitempty"`
}

// Dropped says since when the store has no record of a key.
type Dropped struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"` // at the earliest, on the service's clock
}

// NewNonce makes 128 random bits, in hex.
func NewNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Write makes the body of a record.
func Write(rec tenure.Record) (data []byte, nonce string, err error) {
	return write(Body{Record: &rec})
}

// WriteDropped makes the body that announces a deletion.
func WriteDropped(key string, at time.Time) (data []byte, nonce string, err error) {
	return write(Body{Dropped: &Dropped{Key: key, At: at.UTC()}})
}

func write(b Body) ([]byte, string, error) {
	b.Format, b.Nonce = Format, NewNonce()
	data, err := json.Marshal(b)
	if err != nil {
		return nil, "", err
	}
	return append(data, '\n'), b.Nonce, nil
}

// Read reads a body. If the object is no body, the error matches
// [cas.ErrDamaged] and names the object. The store then decides nothing from
// it, and does not overwrite it.
func Read(name string, data []byte) (Body, error) {
	damaged := func(why string) (Body, error) {
		return Body{}, fmt.Errorf("%w: the object %s: %s; delete it if its key may be forgotten",
			cas.ErrDamaged, name, why)
	}
	var b Body
	switch {
	case len(data) == 0:
		return damaged("it is empty, or packed")
	case len(data) > MaxBody:
		return damaged("it is larger than any record")
	}
	switch err := json.Unmarshal(data, &b); {
	case err != nil:
		return damaged(fmt.Sprintf("%.200s", err)) // the error may quote a huge planted object
	case b.Format > Format:
		return Body{}, fmt.Errorf("the object %s has format %d, this version knows %d:"+
			" a newer version of Croft uses this store; upgrade this one", name, b.Format, Format)
	case b.Format != Format || b.Nonce == "" || (b.Record == nil) == (b.Dropped == nil):
		return damaged("it is not a record of Croft's")
	case b.Record != nil:
		// A listing keeps a whole page of records. It must not keep records
		// that the law refuses, because those may be of any size.
		if err := b.Record.Check(); err != nil {
			// It must not match fence.ErrInvalid: no caller gave this input.
			return damaged(fmt.Sprintf("%.200s", err))
		}
	}
	return b, nil
}

// Read reads the body of an object in this layout. A body whose key belongs
// under another name is damage. Otherwise somebody who may write to one object
// could say who holds the key of another.
func (l Layout) Read(name string, data []byte) (Body, error) {
	b, err := Read(name, data)
	if err != nil {
		return Body{}, err
	}
	var key string
	if b.Record != nil {
		key = b.Record.Key
	} else {
		key = b.Dropped.Key
	}
	if l.Record(key) != name {
		return Body{}, fmt.Errorf("%w: the object %s: it is of %.200q, which belongs elsewhere; delete it",
			cas.ErrDamaged, name, key)
	}
	return b, nil
}
