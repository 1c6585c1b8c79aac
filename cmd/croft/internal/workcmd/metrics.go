package workcmd

import (
	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// metricsFlag defines --metrics.
func metricsFlag(c *cobra.Command, where *string) {
	c.Flags().StringVar(where, "metrics", "", "serve metrics for Prometheus at `host:port` while it runs (:port is "+
		"this machine only), or keep them in a file that ends in .prom")
}

// metrics are those of a command that works with the ledger, and of its client
// of the lease store. Both are nil without --metrics.
type metrics struct {
	ledger *observe.LedgerMetrics
	leases *observe.Metrics
	end    func()
}

// startMetrics serves metrics or writes them to a file, as where says.
func (a *app) startMetrics(where string, o observe.LedgerOptions) (metrics, error) {
	if where == "" {
		return metrics{end: func() {}}, nil
	}
	m := metrics{ledger: observe.NewLedger(&o), leases: observe.New(nil)}
	var err error
	m.end, err = a.ServeMetrics(where, m.ledger, m.leases)
	return m, err
}

// counted returns the ledger with its calls counted.
func (m metrics) counted(l work.Ledger) work.Ledger {
	if m.ledger == nil {
		return l
	}
	return m.ledger.Ledger(l)
}

// client returns the observer of the client, or nil.
func (m metrics) client() func(croft.Event) {
	if m.leases == nil {
		return nil
	}
	return m.leases.Observe
}

// worker returns an observer that counts events and passes them on.
func (m metrics) worker(next func(work.Event)) func(work.Event) {
	if m.ledger == nil {
		return next
	}
	return func(e work.Event) {
		m.ledger.Worker(e)
		next(e)
	}
}

// delivery returns an observer that counts deliveries and passes them on.
func (m metrics) delivery(next func(steward.Delivery)) func(steward.Delivery) {
	if m.ledger == nil {
		return next
	}
	return func(d steward.Delivery) {
		m.ledger.Delivery(d)
		next(d)
	}
}

// paused returns an observer that counts pauses and passes them on.
func (m metrics) paused(next func(steward.Pause)) func(steward.Pause) {
	if m.ledger == nil {
		return next
	}
	return func(p steward.Pause) {
		m.ledger.Paused(p)
		next(p)
	}
}
