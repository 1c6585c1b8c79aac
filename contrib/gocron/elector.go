package gocron

import (
	"context"
	"fmt"
	"sync"

	"github.com/croft-dev/croft"
)

// Elector is a [gocron.Elector]. Only the elected scheduler runs jobs.
type Elector struct {
	client *croft.Client
	key    string
	with   *croft.LeaseOptions

	mu   sync.Mutex
	term *term // nil while another leads
}

// term is one leadership of this process.
type term struct {
	lease *croft.Lease
	tasks sync.WaitGroup
}

// NewElector makes a candidate for the lease on key. o configures the leader's
// lease, and may be nil. The candidate stands while [Elector.Run] runs.
func NewElector(client *croft.Client, key string, o *croft.LeaseOptions) *Elector {
	return &Elector{client: client, key: key, with: o}
}

// Run stands for election until ctx ends, and returns as [croft.Client.Lead]
// does. At the end of a term it waits for the functions of [Elector.Task]. Then
// it releases the lease. It cannot wait for other jobs: shut the scheduler down
// before you end ctx.
func (e *Elector) Run(ctx context.Context) error {
	return e.client.Lead(ctx, e.key, &croft.Election{Lease: e.with, OnElected: e.lead})
}

func (e *Elector) lead(ctx context.Context, lease *croft.Lease) error {
	t := &term{lease: lease}
	e.set(t)
	<-ctx.Done()
	e.set(nil)
	t.tasks.Wait()
	return context.Cause(ctx)
}

func (e *Elector) set(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// IsLeader returns nil while this process holds the lease. It asks the local
// clock, not the store: the lease ends here before the store can grant it to
// another.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leads()
}

func (e *Elector) leads() error {
	if e.term == nil {
		return fmt.Errorf("croft: this process does not lead %q", e.key)
	}
	return e.term.lease.Err()
}

// Task makes the function of a job that the leader runs. Its context ends when
// gocron's or the leadership does. If this process does not lead, the function
// returns an error and does not call work.
func (e *Elector) Task(work croft.Work) func(context.Context) error {
	return func(ctx context.Context) error {
		t, err := e.enter()
		if err != nil {
			return err
		}
		defer t.tasks.Done()
		return run(ctx, t.lease, work, false)
	}
}

func (e *Elector) enter() (*term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.leads(); err != nil {
		return nil, err
	}
	e.term.tasks.Add(1)
	return e.term, nil
}
