package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Stamp is the header with the stamp of a write, and Mark the header with the
// mark of the content that is read.
const (
	StampHeader = "Croft-Stamp"
	MarkHeader  = "Croft-Mark"
)

// File is what a server says of a guarded file.
type File struct {
	Mark    fence.Mark    `json:"mark"`
	Bytes   int64         `json:"bytes,omitempty"`   // of an answer to a write
	Adopted bool          `json:"adopted,omitempty"` // as in guard.Receipt
	Rekeyed guard.Rekeyed `json:"rekeyed,omitzero"`
}

// Write writes what the server says.
func (f File) Write() []byte { return encode(f) }

// ReadFile reads what Write wrote. It refuses a mark that no resource can have.
func ReadFile(data []byte) (f File, err error) {
	err = read(data, false, func(r *reader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "mark":
				err = r.mark(&f.Mark)
			case "bytes":
				err = whole(r, &f.Bytes)
			case "adopted":
				err = r.truth(&f.Adopted)
			case "rekeyed":
				err = r.rekeyed(&f.Rekeyed)
			default:
				return false, nil
			}
			return true, err
		})
	})
	return f, err
}

func (r *reader) mark(into *fence.Mark) error {
	err := r.object(func(name string) (known bool, err error) {
		switch name {
		case "key":
			err = text(r, &into.Key)
		case "token":
			err = whole(r, &into.Token)
		case "grant":
			err = text(r, &into.Grant)
		case "seq":
			err = r.count(&into.Seq)
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil {
		err = into.Check()
	}
	return err
}

func (r *reader) rekeyed(into *guard.Rekeyed) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "from":
			err = text(r, &into.From)
		case "actor":
			err = text(r, &into.Actor)
		case "note":
			err = text(r, &into.Note)
		case "at":
			err = r.moment(&into.At)
		default:
			return false, nil
		}
		return true, err
	})
}

// Acts on a guarded file.
const (
	RaiseFile = "raise"
	RekeyFile = "rekey"
	ResetFile = "reset"
)

// FileAct is the body of POST /v1/files/PATH: an act on a guarded file that
// writes no content.
type FileAct struct {
	Act   string      `json:"act"`
	Stamp string      `json:"stamp,omitempty"` // of a raise
	Key   string      `json:"key,omitempty"`   // of a rekey
	Floor fence.Token `json:"floor,omitempty"` // of a reset
	Actor string      `json:"actor,omitempty"`
	Note  string      `json:"note,omitempty"`
}

// Bytes writes the act.
func (a FileAct) Bytes() []byte { return encode(a) }

// ReadFileAct reads an act, strictly.
func ReadFileAct(body []byte) (a FileAct, err error) {
	err = read(body, true, func(r *reader) error {
		return r.object(func(name string) (known bool, err error) {
			switch name {
			case "act":
				err = text(r, &a.Act)
			case "stamp":
				err = text(r, &a.Stamp)
			case "key":
				err = text(r, &a.Key)
			case "floor":
				err = whole(r, &a.Floor)
			case "actor":
				err = text(r, &a.Actor)
			case "note":
				err = text(r, &a.Note)
			default:
				return false, nil
			}
			return true, err
		})
	})
	return a, err
}

// MarkText writes a mark for a header: token, grant, number and the key,
// percent-encoded, with colons between them.
func MarkText(m fence.Mark) string {
	return fmt.Sprintf("%d:%s:%d:%s", m.Token, m.Grant, m.Seq, fence.EscapeKey(m.Key))
}

// ReadMarkText reads what MarkText wrote.
func ReadMarkText(text string) (m fence.Mark, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 4 || len(text) > fence.MaxStamp {
		return m, fmt.Errorf("%w mark: it does not have four parts", fence.ErrInvalid)
	}
	token, err := strconv.ParseInt(parts[0], 10, 64)
	seq, wrong := strconv.ParseUint(parts[2], 10, 64)
	key, unescaped := fence.UnescapeKey(parts[3])
	if err := errors.Join(err, wrong, unescaped); err != nil {
		return m, fmt.Errorf("%w mark: %w", fence.ErrInvalid, err)
	}
	m = fence.Mark{Key: key, Token: fence.Token(token), Grant: fence.Grant(parts[1]), Seq: seq}
	return m, m.Check()
}
