package work

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// ID names one item for ever: 128 bits as 32 lower-case hex digits, so that a
// database can keep it as a UUID or 16 bytes. The caller makes it before it
// adds the item. After a lost reply, add again with the same ID.
type ID string

// NewID makes an ID. It begins with the time in milliseconds, so that items
// made one after the other are neighbours in an index. Nothing relies on its
// order.
func NewID() ID { return newID(time.Now()) }

func newID(now time.Time) ID {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails: crypto/rand aborts the program instead
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(now.UnixMilli(), 0)))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70 // version 7 and its variant, for tools that show UUIDs
	b[8] = b[8]&0x3f | 0x80
	return ID(hex.EncodeToString(b[:]))
}

// Valid reports whether the ID is 32 lower-case hex digits.
func (id ID) Valid() bool { return fence.Grant(id).Valid() }

// Check returns nil if the ID is valid. Otherwise its error matches
// fence.ErrInvalid, and tells the user who typed the ID what to do.
func (id ID) Check() error {
	if !id.Valid() {
		return fmt.Errorf("%w item id %.80q: it must be 32 lower-case hex digits, as add has printed it",
			fence.ErrInvalid, string(id))
	}
	return nil
}
