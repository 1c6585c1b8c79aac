package work

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
)

// ID names one item for ever: 128 bits as 32 lower-case hex digits, so that a database can keep it as a UUID or 16 bytes. Whoever adds the item makes it before the
// request, so that a lost reply is no mystery: add again with the same ID.
type ID string

// NewID makes an ID. It begins with the time in milliseconds, so that items made one after the other lie side by side in an index; nothing relies on its order.
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

// Valid reports whether the ID has the one form that is written.
func (id ID) Valid() bool { return fence.Grant(id).Valid() }

// Check reports what is wrong with the ID, for whoever has typed it, or nil.
func (id ID) Check() error {
	if !id.Valid() {
		return fmt.Errorf("%w item id %.80q: it must be 32 lower-case hex digits, as add has printed it", fence.ErrInvalid, string(id))
	}
	return nil
}
