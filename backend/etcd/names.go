package etcd

import (
	"encoding/hex"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultPrefix begins the names of a store's etcd keys, unless its options say
// otherwise.
const DefaultPrefix = "croft/"

// naming makes the names of a store's etcd keys. Croft's keys have no control
// characters, so a zero byte can end one.
//
//	PREFIXr/KEY            the record of a key
//	PREFIXh/KEY            its shelf: the older part of its history
//	PREFIXp/STORE/NUMBER   a page: when its leases were renewed last
//	PREFIXl/LEASE          the live key of an etcd lease
//	PREFIXq/KEY\0STORE     the queue entry of a store that waits for KEY
//	PREFIXa/NUMBER         a notice of an operator's act: the key acted on
type naming string

func (n naming) records() string          { return string(n) + "r/" }
func (n naming) record(key string) string { return string(n) + "r/" + key }
func (n naming) shelves() string          { return string(n) + "h/" }
func (n naming) shelf(key string) string  { return string(n) + "h/" + key }
func (n naming) pages() string            { return string(n) + "p/" }
func (n naming) lives() string            { return string(n) + "l/" }
func (n naming) live(id clientv3.LeaseID) string {
	return string(n) + "l/" + strconv.FormatInt(int64(id), 16)
}
func (n naming) queues() string          { return string(n) + "q/" }
func (n naming) queue(key string) string { return string(n) + "q/" + key + "\x00" }

func (n naming) waiter(key string, store identity) string { return n.queue(key) + store.String() }

func (n naming) page(p pageID) string {
	return string(n) + "p/" + p.store.String() + "/" + strconv.FormatUint(uint64(p.number), 10)
}

// waiting splits the name of a queue entry into its parts.
func (n naming) waiting(name string) (key string, store identity, ok bool) {
	rest, ok := strings.CutPrefix(name, n.queues())
	if !ok {
		return "", 0, false
	}
	key, text, ok := strings.Cut(rest, "\x00")
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != 8 {
		return "", 0, false
	}
	for _, b := range raw {
		store = store<<8 | identity(b)
	}
	return key, store, true
}

// identity names a store or a clock: 64 random bits. 0 is none.
type identity uint64

func (i identity) String() string {
	text := strconv.FormatUint(uint64(i), 16)
	return strings.Repeat("0", 16-len(text)) + text
}

// pageID names a page. The zero pageID is none.
type pageID struct {
	store  identity
	number uint32
}
