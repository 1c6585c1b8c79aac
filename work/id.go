package work

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
)

// ID names one item for ever: 128 bits as 32 lower-case hex digits, so that a
// database can keep it as a UUID or 16 bytes. The caller makes it before it
// adds the item. After a lost reply, add again with the same ID.
type ID string

// NewID makes an ID. It begins with the time in milliseconds, so that items
// made one after the other are neighbours in an index.
//
// Every ID is above those that the same process has made before. So items that
// it adds together, in the order of their IDs, are claimed in that order.
func NewID() ID { return ids.next(time.Now()) }

// ids makes the IDs of this process.
var ids sequence

// sequence makes rising IDs.
type sequence struct {
	mu sync.Mutex
	// last is the time of the last ID in milliseconds, and 12 bits that count
	// the IDs of that millisecond.
	last uint64
}

// next makes an ID at now, or just after the one before it if the clock has not
// moved on.
func (s *sequence) next(now time.Time) ID {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails: crypto/rand aborts the program instead
	// The count begins at random in its lower half, so that other processes
	// cannot tell how many IDs there are.
	count := uint64(binary.BigEndian.Uint16(b[6:])) & 0x7ff
	s.mu.Lock()
	s.last = max(s.last+1, uint64(max(now.UnixMilli(), 0))<<12|count)
	last := s.last
	s.mu.Unlock()

	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], last>>12)
	copy(b[:6], ms[2:])
	binary.BigEndian.PutUint16(b[6:], uint16(last&0xfff)|0x7000) // version 7, for tools that show UUIDs
	b[8] = b[8]&0x3f | 0x80                                      // and its variant
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
