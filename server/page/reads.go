package page

import "sync"

// ownReads bounds how many requests of one visitor read the store at a time, so
// that others can read, too.
type ownReads struct {
	mu    sync.Mutex
	names map[string]*ownSlots // guarded by mu; of visitors that read or wait
}

type ownSlots struct {
	slots chan struct{}
	users int
}

// of returns the slots of a visitor, which are kept until forget is called.
func (o *ownReads) of(name string) (slots chan struct{}, forget func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.names[name]
	if s == nil {
		s = &ownSlots{slots: make(chan struct{}, maxOwnReads)}
		if o.names == nil {
			o.names = map[string]*ownSlots{}
		}
		o.names[name] = s
	}
	s.users++
	return s.slots, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(o.names, name)
		}
	}
}
