package mem

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/ledger"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Ledger is a handle on items of work in memory: for tests, and for the goroutines of one process. Its Within is the transaction that ledgers in databases leave to the caller. Nothing is forgotten unless Prune is called.
type Ledger = ledger.Ledger

// NewLedger makes an empty ledger. o may be nil; its Retention is not used. Open of the ledger returns another handle on the same items.
func NewLedger(o *Options) *Ledger {
	now := time.Now
	if o != nil && o.Now != nil {
		now = o.Now
	}
	return ledger.New(now, ledger.Sound())
}

var sharedLedgers struct {
	sync.Mutex
	ledgers map[string]*Ledger
}

func init() { work.Register("mem", openLedger) }

// openLedger opens the ledger of this process that "mem://name" names, and makes it if need be.
func openLedger(_ context.Context, u *url.URL) (work.Ledger, error) {
	if !named(u) {
		return nil, fmt.Errorf("%w ledger URL %q: a ledger in memory is named mem://NAME and takes nothing else", fence.ErrInvalid, store.Redact(u.String()))
	}
	sharedLedgers.Lock()
	defer sharedLedgers.Unlock()
	if sharedLedgers.ledgers == nil {
		sharedLedgers.ledgers = map[string]*Ledger{}
	}
	if sharedLedgers.ledgers[u.Host] == nil {
		sharedLedgers.ledgers[u.Host] = NewLedger(nil)
	}
	return sharedLedgers.ledgers[u.Host].Open(), nil
}

// named reports whether a URL is mem://NAME and nothing else.
func named(u *url.URL) bool {
	return u.Host != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}
