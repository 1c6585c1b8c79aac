package mem

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

var (
	stores  shared[*Store]
	ledgers shared[*Ledger]
)

func init() {
	store.Register("mem", func(_ context.Context, u *url.URL) (store.Store, error) {
		s, err := stores.named("store", u, New)
		if err != nil {
			return nil, err
		}
		return s.Open(nil), nil
	})
	work.Register("mem", func(_ context.Context, u *url.URL) (work.Ledger, error) {
		l, err := ledgers.named("ledger", u, NewLedger)
		if err != nil {
			return nil, err
		}
		return l.Open(), nil
	})
}

// shared has the stores or ledgers of this process, by name.
type shared[T any] struct {
	mu  sync.Mutex
	all map[string]T
}

// named returns the store or ledger of the URL "mem://name". It makes it if
// there is none.
func (s *shared[T]) named(what string, u *url.URL, create func(*Options) T) (one T, err error) {
	if u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return one, fmt.Errorf("%w %s URL %q: a %s in memory is named mem://NAME and takes nothing else",
			fence.ErrInvalid, what, store.Redact(u.String()), what)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, there := s.all[u.Host]
	if !there {
		if s.all == nil {
			s.all = map[string]T{}
		}
		one = create(nil)
		s.all[u.Host] = one
	}
	return one, nil
}
