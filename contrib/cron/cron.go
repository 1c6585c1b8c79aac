// Package cron runs jobs of robfig/cron under a lease of Croft. Of all machines
// that have the same job in their schedule, one runs it at a time.
//
// [Job] makes a job from a function that gets the lease and its context. [Once]
// is a wrapper for jobs that exist already.
//
// Machines do not start their jobs at the very same moment. If the first
// machine is done before the second one begins, both run the job. So set Every
// in the lease's options, for one success per period, or HoldFor.
//
// A lease alone does not stop a stale writer. Let every write that matters
// carry [croft.Lease.Stamp].
package cron

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/croft-dev/croft"
)

// Options configure [Job] and [Once]. A nil *Options and the zero Options are
// the defaults.
type Options struct {
	// Lease configures the lease of each run. Default: the defaults of
	// [croft.LeaseOptions].
	Lease *croft.LeaseOptions
	// Logger is told of skipped runs (Info) and of failed ones (Error).
	// Default: [cron.DefaultLogger].
	Logger cron.Logger
}

// Job makes a cron job that runs work under the lease on key. The context of
// work ends when the lease or ctx does. After ctx has ended, work does not
// begin. A run is skipped if it is not this machine's turn.
func Job(ctx context.Context, client *croft.Client, key string, o *Options, work croft.Work) cron.Job {
	var with Options
	if o != nil {
		with = *o
	}
	if with.Logger == nil {
		with.Logger = cron.DefaultLogger
	}
	return cron.FuncJob(func() {
		err := client.Do(ctx, key, with.Lease, work)
		switch {
		case err == nil:
		case errors.Is(err, croft.ErrHeld):
			with.Logger.Info("skip", "key", key, "reason", err.Error())
		default:
			with.Logger.Error(err, "run", "key", key)
		}
	})
}

// Once wraps jobs so that they run only under the lease on key. A plain job
// gets neither a context nor a stamp. So nothing stops it when the lease is
// lost, and its writes cannot be fenced: prefer [Job]. A run counts as a
// success unless the job panics or the lease is lost.
//
// The key is the same for all jobs of a chain. Give every job its own chain:
//
//	once := croftcron.Once(ctx, client, "reports/daily", nil)
//	c.AddJob("0 6 * * *", cron.NewChain(once).Then(job))
func Once(ctx context.Context, client *croft.Client, key string, o *Options) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(ctx, client, key, o, func(context.Context, *croft.Lease) error {
			job.Run()
			return nil
		})
	}
}
