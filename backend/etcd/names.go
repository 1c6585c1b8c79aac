package etcd

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// DefaultPrefix begins the names of a store's etcd keys, unless its options say
// otherwise.
const DefaultPrefix = "croft/"

// naming makes the names of a store's etcd keys. Croft's keys have no control
// characters, so a zero byte can end one.
//
//	PREFIXr/KEY            the record of a key
//	PREFIXh/KEY            the heartbeat of a held key: its last renewal
//	PREFIXq/KEY\0STORE     the queue entry of a store that waits for KEY
//	PREFIXa/NUMBER         a notice of an operator's act: the key acted on
type naming string

func (n naming) records() string                         { return string(n) + "r/" }
func (n naming) record(key string) string                { return string(n) + "r/" + key }
func (n naming) heartbeat(key string) string             { return string(n) + "h/" + key }
func (n naming) queue(key string) string                 { return string(n) + "q/" + key + "\x00" }
func (n naming) entry(key string, store identity) string { return n.queue(key) + store.String() }
func (n naming) notices() string                         { return string(n) + "a/" }

// waiting returns the store of an entry in a key's queue, or 0 if the name is
// none of an entry.
func (n naming) waiting(key, name string) identity {
	text, ok := strings.CutPrefix(name, n.queue(key))
	id, err := strconv.ParseUint(text, 16, 64)
	if !ok || err != nil || len(text) != 16 {
		return 0
	}
	return identity(id)
}

// identity names a store or a clock: 64 random bits. 0 is none.
type identity uint64

func newIdentity() identity {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
		if i := identity(binary.BigEndian.Uint64(b[:])); i != 0 {
			return i
		}
	}
}

func (i identity) String() string { return fmt.Sprintf("%016x", uint64(i)) }
