package mem

import (
	"time"

	"github.com/croft-dev/croft/internal/ledger"
)

// Ledger is a handle on items of work in memory. It is for tests, and for the
// goroutines of one process. Its Within is the transaction that ledgers in
// databases leave to the caller. It forgets items only when Prune is called.
type Ledger = ledger.Ledger

// NewLedger makes an empty ledger. o may be nil. Its Retention is not used. The
// ledger's Open returns another handle on the same items.
func NewLedger(o *Options) *Ledger {
	now := time.Now
	if o != nil && o.Now != nil {
		now = o.Now
	}
	return ledger.New(now, ledger.Sound())
}
