package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// The headers of the content of a file: the stamp of a write, the part that it
// sends, and the mark of the content that is read.
const (
	StampHeader  = "Croft-Stamp"
	UploadHeader = "Croft-Upload"
	MarkHeader   = "Croft-Mark"
)

// File is what a server says of a guarded file.
type File struct {
	Mark    fence.Mark    `json:"mark"`
	Bytes   int64         `json:"bytes,omitempty"`   // of an answer to a write
	Adopted bool          `json:"adopted,omitempty"` // as in guard.Receipt
	Arrived int64         `json:"arrived,omitempty"` // of the content, if there is more to come
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
			case "arrived":
				err = whole(r, &f.Arrived)
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

// Upload describes a part of the content of a write. A client sends the parts
// in order, and one again if it does not know whether the server has it.
type Upload struct {
	ID     string // 32 hex digits that the client has made for this write
	Offset int64  // of the part
	Size   int64  // of the whole content
	Sum    string // the SHA-256 of the whole content, in hex
}

// Text writes the description for a header: the fields in order, with colons
// between them.
func (u Upload) Text() string { return fmt.Sprintf("%s:%d:%d:%s", u.ID, u.Offset, u.Size, u.Sum) }

// ReadUpload reads what Text wrote.
func ReadUpload(text string) (u Upload, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 4 || len(text) > 256 {
		return u, fmt.Errorf("%w upload: it is ID:OFFSET:SIZE:SHA256", fence.ErrInvalid)
	}
	offset, err := strconv.ParseInt(parts[1], 10, 64)
	size, wrong := strconv.ParseInt(parts[2], 10, 64)
	if err := errors.Join(err, wrong); err != nil {
		return u, fmt.Errorf("%w upload: %w", fence.ErrInvalid, err)
	}
	u = Upload{ID: parts[0], Offset: offset, Size: size, Sum: parts[3]}
	switch {
	case !isHex(u.ID, 32) || !isHex(u.Sum, 64):
		return u, fmt.Errorf("%w upload: its id has 32 hex digits, and its SHA-256 has 64", fence.ErrInvalid)
	case offset < 0 || offset > size || u.Text() != text:
		return u, fmt.Errorf("%w upload: its offset is not within its size", fence.ErrInvalid)
	}
	return u, nil
}

// isHex reports whether a text has so many hex digits, in lower case.
func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
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
