//go:build unix

package chaostest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	croft "github.com/croft-dev/croft"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

const (
	queue = "chaos"
	// ttl is the TTL of claims, and of the leases of reconciler and
	// dispatchers. An owner that is slower than this loses its item to another.
	// That costs time and breaks no promise.
	ttl = 2 * time.Second
	// limit is the limit of attempts and deliveries: no disturbance makes the
	// ledger give up an item or effect.
	limit = 1000
)

var secret = []byte("the secret of the webhook, for tests")

// play runs this process in its role until SIGTERM.
func play(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	shop, err := patiently(ctx, func() (shop, error) { return openShop(ctx, os.Getenv(envPlace)) })
	if err != nil {
		return err
	}
	defer shop.close()
	name := os.Getenv(envName)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if role == "worker" || role == "sleeper" {
		return labour(ctx, shop, role, name, logger)
	}
	client, err := patiently(ctx, func() (*croft.Client, error) {
		return croft.Open(ctx, os.Getenv(envPlace), &croft.Options{Owner: name, Logger: logger})
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if role == "reconciler" {
		return steward.RunReconciler(ctx, client, shop.ledger(), &steward.ReconcileOptions{Interval: 200 * time.Millisecond, TTL: ttl, Deliveries: limit, Logger: logger})
	}
	to := map[string]steward.Deliverer{"hook": steward.Webhook{URL: os.Getenv(envHook), Secrets: [][]byte{secret}}}
	return steward.RunDispatcher(ctx, client, shop.ledger(), to, &steward.DispatchOptions{
		Slots: 8, Timeout: time.Second, CallTimeout: time.Second, Deliveries: limit, Poll: 100 * time.Millisecond, TTL: ttl, Logger: logger,
	})
}

// patiently opens a ledger or client, again and again until it succeeds. The
// server may be down, or a stopped process may keep the file locked.
func patiently[T any](ctx context.Context, open func() (T, error)) (T, error) {
	for {
		opened, err := open()
		if err == nil || ctx.Err() != nil {
			return opened, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// labour runs a worker, and writes the completions that the ledger has
// confirmed to the journal.
func labour(ctx context.Context, shop shop, role, name string, logger *slog.Logger) error {
	journal, err := os.OpenFile(os.Getenv(envJournal), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer journal.Close()
	slots, handler := 2, busy(shop, name)
	if role == "sleeper" {
		slots, handler = 1, asleep(name, os.Getenv(envGo), handler)
	}
	// The drain ends before the parent process loses its patience.
	return work.Run(ctx, shop.ledger(), map[string]work.Handler{queue: handler}, &work.Options{
		Slots: slots, Owner: name, TTL: ttl, Poll: 100 * time.Millisecond, Drain: 2 * time.Second, Grace: 2 * time.Second, Logger: logger,
		Observe: func(e work.Event) {
			if e.Kind == work.EventCompleted {
				// This is one write(2). A process killed in the middle leaves a
				// line without its end.
				fmt.Fprintf(journal, "\n%s %d .\n", e.Item, e.Token)
			}
		},
	})
}

// content returns the result of an attempt. It names the owner and the token,
// so that a mixture of two attempts would show.
func content(it work.Item, owner string) []byte {
	return fmt.Appendf(nil, "%s by %s under %d", it.Payload, owner, it.Record.Token)
}

func resultOf(it work.Item, owner string) work.Result {
	body := content(it, owner)
	return work.Result{Body: body, Effects: []work.Emission{{Name: "notify", To: "hook", Body: body}}}
}

// busy is the worst kind of worker: it ignores its context and every refusal.
func busy(shop shop, name string) work.Handler {
	return func(ctx context.Context, job *work.Job) (work.Result, error) {
		it := job.Item()
		_ = job.Report(ctx, "begun")
		time.Sleep(time.Duration(10+rand.IntN(80)) * time.Millisecond)
		_ = job.Save(ctx, []byte("half way"))
		switch {
		case strings.HasPrefix(string(it.Payload), "fails first ") && it.Attempts == 1:
			return work.Result{}, work.RetryAfter(errors.New("the first attempt always fails"), 10*time.Millisecond)
		case inTransaction(it.Payload):
			call, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := shop.complete(call, job, resultOf(it, name)); err != nil {
				return work.Result{}, work.RetryAfter(err, 10*time.Millisecond)
			}
		}
		return resultOf(it, name), nil
	}
}

// inTransaction reports whether the worker completes the item in its own
// transaction, together with a line in the tally.
func inTransaction(payload []byte) bool { return strings.HasPrefix(string(payload), "tallied ") }

// asleep keeps its first item until it is woken, whatever happens to the item
// meanwhile. Then it works like any other worker.
func asleep(name, file string, then work.Handler) work.Handler {
	return func(ctx context.Context, job *work.Job) (work.Result, error) {
		for waited := false; ; waited = true {
			if _, err := os.Stat(file); err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			if !waited {
				return then(ctx, job)
			}
			return resultOf(job.Item(), name), nil
		}
	}
}
