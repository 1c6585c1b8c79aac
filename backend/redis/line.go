package redis

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/tenure"
)

// Those who wait for a key stand in line, in the key's record: the stores whose acquire was refused while they watched, the first first. Whatever frees the key takes the first out of the line and says its
// id to all who watch. That one wakes those who wait in it at once, the others only if nothing more is heard of the key for a moment: whose turn it was may be stopped or dead.
//
// It is a hint, like every wake-up. The key is reserved for nobody, and whoever asks first has it.

const (
	// grace is how long the others give the one whose turn it is. Up to half of it is added at random, so that they do not all ask at once.
	grace = 100 * time.Millisecond
	// inLineFor is how long a store that does not ask again believes in its place: less than apply.lua does.
	inLineFor = 10 * time.Second
	// taken is what is said of a key that has been granted.
	taken = "held"
	// idSize is that of a store's id.
	idSize = 8
)

func newID() string {
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails: crypto/rand aborts the program instead
	return string(id)
}

// watches reports whether somebody waits for a key in this store, so that an acquire puts it in line. It costs next to nothing while nobody waits for any.
func (h *hub) watches(name string) bool {
	if h.watched.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil || !t.known || len(t.waiters) == 0 {
		return false
	}
	t.placed = true
	return true
}

// stands takes note of whether an acquire left the store in line.
func (h *hub) stands(name string, req *tenure.Request, said verdict) {
	if req.Verb != tenure.Acquire || h.watched.Load() == 0 && !said.inLine() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch t := h.topics[name]; {
	case t == nil || len(t.waiters) == 0:
		if said.inLine() { // those who waited have gone meanwhile
			h.stepOut(name)
		}
	case said.inLine():
		t.placed, t.inLine = true, time.Now()
	default:
		t.placed, t.inLine = t.placed && said != done, time.Time{} // only who is granted the key loses its place
	}
}

// hear takes what is said of a key.
func (h *hub) hear(name, word string) {
	if name == h.actsName {
		h.hearAct(word)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil || len(t.waiters) == 0 {
		return
	}
	stop(&t.grace)
	switch inLine := time.Since(t.inLine) < inLineFor; {
	case word == h.id:
		t.inLine = time.Time{}
		t.wake()
	case word == "" || !inLine:
		t.wake()
	case word != taken:
		wait := grace + time.Duration(mathrand.Int64N(int64(grace/2)))
		t.grace = time.AfterFunc(wait, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.wake()
		})
	}
}

// stepOut takes the store out of a key's line, some time soon: until then, or if it fails, the others' grace makes up for it.
func (h *hub) stepOut(name string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		h.leaves(ctx, []string{name})
		h.mu.Lock()
		defer h.mu.Unlock()
		if t := h.topics[name]; t != nil {
			t.inLine = time.Time{} // whoever waits again, and was put in line before this arrived, is so no more
		}
	}()
}

// leave takes the store out of the lines of keys. It is a kindness: nothing depends on it.
func (s *Store) leave(ctx context.Context, names []string) {
	calls := make([]*call[*goredis.StringCmd], len(names))
	for n, name := range names {
		c := newCall(s.apply, goredis.NewStringCmd, 2, 1)
		packing := packing{}
		packing.settings(s.retention, s.at(), s.flags, s.id)
		packing.leave()
		c.args = append(c.args, s.names.indexOf(name), name, []byte(packing))
		c.once = true
		calls[n] = c
	}
	runAll(ctx, s.client, calls)
}
