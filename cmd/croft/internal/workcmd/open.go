package workcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// ledger opens the ledger. It prints the name of the ledger if it is the
// default.
func (a *app) ledger(ctx context.Context) (work.Ledger, error) {
	name, defaulted, err := a.LedgerName()
	if err != nil {
		return nil, err
	}
	if defaulted {
		usual, err := cli.DefaultStore()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(a.Stderr, "croft: this machine only: %s\n", usual+cli.LedgerSuffix)
		if err := os.MkdirAll(filepath.Dir(usual), 0o700); err != nil {
			return nil, err
		}
	}
	return a.OpenLedger(ctx, name)
}

// lookUpLedger opens the ledger only if it exists already, for completion. It
// prints nothing and creates nothing.
func (a *app) lookUpLedger(ctx context.Context) (work.Ledger, error) {
	name, _, err := a.LedgerName()
	if err != nil {
		return nil, err
	}
	if path := cli.LocalPath(name); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return a.OpenLedger(ctx, name)
}

// ledgerClient returns a client of the lease store in the ledger's database.
// Dispatchers and reconcilers keep their leases there.
func (a *app) ledgerClient(
	ctx context.Context, observe func(croft.Event),
) (c *croft.Client, end func(), err error) {
	name, _, err := a.LedgerName()
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	stop := a.AskOnTerminal()
	st, err := cli.OpenWithin(opening, name)
	stop()
	if err != nil {
		return nil, nil, err
	}
	c = croft.New(st, &croft.Options{Owner: a.Owner, CallTimeout: a.Timeout, Observe: observe})
	return c, func() {
		_ = c.Close()
		_ = st.Close()
	}, nil
}

// withLedger opens the ledger and calls look, which may take up to ListTimeout.
func (a *app) withLedger(
	ctx context.Context, look func(ctx context.Context, l work.Ledger, now time.Time) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	l, err := a.ledger(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	stop := a.AskOnTerminal()
	now, err := l.Now(ctx)
	stop()
	if err != nil {
		return store.Unknown(err)
	}
	return look(ctx, l, now)
}

// applied opens the ledger and sends it requests.
func (a *app) applied(ctx context.Context, requests ...work.Request) ([]work.Answer, error) {
	for _, req := range requests {
		if err := req.Check(); err != nil {
			return nil, err // before anything is opened
		}
	}
	l, err := a.ledger(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return a.apply(ctx, l, requests), nil
}

// apply sends requests to the ledger. It repeats those without an answer, which
// is safe, until twice the timeout has passed. A fault is told at once, unless
// an earlier try may have taken effect.
func (a *app) apply(ctx context.Context, l work.Ledger, requests []work.Request) []work.Answer {
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	defer a.AskOnTerminal()()
	answers := make([]work.Answer, len(requests))
	left := make([]int, len(requests))
	for i := range left {
		left[i] = i
	}
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		batch := make([]work.Request, len(left))
		for i, at := range left {
			batch[i] = requests[at]
		}
		call, done := context.WithTimeout(ctx, a.Timeout)
		var unknown []int
		for i, answer := range l.Apply(call, batch) {
			at := left[i]
			fault := store.IsFault(answer.Err)
			if doubted := answers[at].Err != nil; !fault || !doubted {
				answers[at] = answer
			}
			if errors.Is(answers[at].Err, work.ErrUnknown) && !store.IsFault(answers[at].Err) {
				unknown = append(unknown, at)
			}
		}
		done()
		left = unknown
		if len(left) == 0 || clock.Sleep(ctx, pause) != nil {
			return answers
		}
	}
}

// checkQueue returns why a queue cannot have this name, or nil.
func checkQueue(name string) error {
	if name == "" { // a query takes it for all queues
		return cli.Invalid("queue: its name is empty")
	}
	return work.Query{Queue: name}.Check()
}
