package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

const (
	// prompt is the longest time in which a prompt server answers.
	prompt = 100 * time.Millisecond
	// patience is how long a caller waits itself for a server that was prompt.
	patience = 250 * time.Millisecond
)

// Apply carries out requests. It sends at least one script for each namespace,
// with at most 256 requests each, all in one round trip. It needs a second
// round trip only if two of these scripts share a key. If ctx ends first, the
// answers match [store.ErrUnknown], and the requests may still take effect
// after Apply has returned. It is safe to send them again: the law recognises
// copies.
//
// go-redis does not notice when a context is cancelled. A call that may hang
// therefore needs a goroutine that the caller can leave behind, and that
// doubles the cost of a call. So if the server was prompt the last time, the
// caller makes the call itself and waits for at most patience. If the server
// hangs now, Apply sends the same requests again from a goroutine.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	waves := split(requests, answers)
	if len(waves) == 0 {
		return answers
	}
	if err := s.usable(ctx); err != nil {
		return unanswered(answers, waves, err)
	}
	asked := false // an earlier try may have taken effect
	if len(waves) == 1 && s.bounded && !s.slow.Load() {
		left := s.send(briefly{ctx, time.Now().Add(patience)}, true, waves[0], requests, answers)
		if len(left) == 0 || allFaults(left, answers) {
			return answers
		}
		if ctx.Err() != nil {
			return unanswered(answers, [][]*chunk{left}, wait.Ended(ctx))
		}
		waves[0], asked = left, true
	}
	requests = slices.Clone(requests) // the goroutine may outlive this call
	got, err := wait.For(ctx, func() ([]store.Answer, error) {
		got := make([]store.Answer, len(requests))
		for _, chunks := range waves {
			left := s.send(ctx, true, chunks, requests, got)
			if len(left) == 0 || !asked && allFaults(left, got) {
				continue
			}
			s.send(ctx, false, left, requests, got)
		}
		return got, nil
	})
	if err != nil {
		return unanswered(answers, waves, err)
	}
	for _, chunks := range waves {
		for _, c := range chunks {
			for _, i := range c.indexes {
				answers[i] = got[i]
				err := got[i].Err
				if ctx.Err() != nil && errors.Is(err, store.ErrUnknown) && !errors.Is(err, ctx.Err()) {
					answers[i].Err = store.Unknown(fmt.Errorf("%w: %w", wait.Ended(ctx), err))
				}
			}
		}
	}
	return answers
}

// briefly is a context with an early deadline. go-redis observes deadlines, but
// not cancellations.
type briefly struct {
	context.Context
	until time.Time
}

func (c briefly) Deadline() (time.Time, bool) {
	if until, ok := c.Context.Deadline(); ok && until.Before(c.until) {
		return until, true
	}
	return c.until, true
}

// bounded reports whether calls of a client end within seconds, by the deadline
// of their context or by the client's read timeout.
func bounded(client goredis.UniversalClient) bool {
	const most = 5 * time.Second // go-redis's default
	switch c := client.(type) {
	case *goredis.Client:
		o := c.Options()
		return o.ContextTimeoutEnabled || o.ReadTimeout > 0 && o.ReadTimeout <= most
	case *goredis.ClusterClient:
		o := c.Options()
		return o.ContextTimeoutEnabled || o.ReadTimeout > 0 && o.ReadTimeout <= most
	}
	return false
}

// unanswered sets the answers to all requests of chunks to unknown.
func unanswered(answers []store.Answer, waves [][]*chunk, err error) []store.Answer {
	for _, chunks := range waves {
		for _, c := range chunks {
			for _, i := range c.indexes {
				answers[i] = store.Answer{Err: store.Unknown(err)}
			}
		}
	}
	return answers
}

// send carries out the chunks of one wave, and returns those that Redis has not
// answered. If once is set, the client does not try again by itself.
func (s *Store) send(
	ctx context.Context, once bool, chunks []*chunk, requests []tenure.Request, answers []store.Answer,
) (left []*chunk) {
	began := time.Now()
	calls := make([]*call[*goredis.StringCmd], len(chunks))
	for n, c := range chunks {
		calls[n] = s.call(c, requests)
		calls[n].once = once
	}
	if s.wait == 0 {
		runAll(ctx, s.client, calls)
	}
	slow := false
	for n, c := range chunks {
		var unconfirmed error
		if s.wait > 0 {
			unconfirmed = s.confirmed(ctx, calls[n])
		}
		err := calls[n].cmd.Err()
		if err != nil {
			cause := explain(err)
			if once && s.sendsOnce(calls) {
				cause = explainStore(err)
			}
			left, slow = append(left, c), slow || !replied(err) && !store.IsFault(cause)
			err = store.Unknown(cause)
		}
		reply := packed{rest: calls[n].cmd.Val()}
		now := reply.time()
		for k, i := range c.indexes {
			if err != nil {
				answers[i].Err = err
				continue
			}
			s.stood(calls[n].args[4+k].(string), &requests[i], reply.answer(&requests[i], now, &answers[i]))
			if unconfirmed != nil && answers[i].Err == nil {
				answers[i] = store.Answer{Err: store.Unknown(unconfirmed)}
			}
		}
		if reply.rest != "" { // the answers above were read from a damaged reply
			for _, i := range c.indexes {
				answers[i] = store.Answer{Err: store.Unknown(errReply)}
			}
		}
	}
	if slow = slow || time.Since(began) > prompt; slow != s.slow.Load() {
		s.slow.Store(slow)
	}
	return left
}

// sendsOnce reports whether go-redis sends calls at most once if it is told to.
// It repeats pipelines, and asks other nodes of a cluster.
func (s *Store) sendsOnce(calls []*call[*goredis.StringCmd]) bool {
	_, single := s.client.(*goredis.Client)
	return single && len(calls) == 1 && s.wait == 0
}

// allFaults reports whether chunks have certainly not been carried out.
func allFaults(chunks []*chunk, answers []store.Answer) bool {
	for _, c := range chunks {
		for _, i := range c.indexes {
			if !store.IsFault(answers[i].Err) {
				return false
			}
		}
	}
	return true
}

// Flags for apply.lua, to be added up.
const (
	rewrite   byte = 1 << iota // write a confirmed record even if it has not changed
	clustered                  // the server may be a node of a cluster
)

// call makes the script call for a chunk, without sending it.
func (s *Store) call(c *chunk, requests []tenure.Request) *call[*goredis.StringCmd] {
	made := newCall(s.apply, goredis.NewStringCmd, 1+len(c.indexes), 1)
	root := s.names.root(c.namespace)
	made.args = append(made.args, root+"i")
	root += "k:"
	size := 32
	for _, i := range c.indexes {
		size += requestSize + 16 + len(requests[i].Owner) + len(requests[i].Instance)
	}
	packing := make(packing, 0, size)
	packing.settings(s.retention, s.at(), s.flags, s.id)
	for _, i := range c.indexes {
		req := &requests[i]
		name := root + req.Key
		made.args = append(made.args, name)
		packing.request(req, req.Verb == tenure.Acquire && s.hub.Watches(name))
	}
	made.args = append(made.args, []byte(packing))
	return made
}

// confirmed sends a call and waits until enough replicas have its changes. It
// returns an error if they do not confirm in time; the call's own error is in
// c.cmd. WAIT covers only writes of its own connection, so both commands go
// into one pipeline.
func (s *Store) confirmed(ctx context.Context, c *call[*goredis.StringCmd]) error {
	on := s.client
	cluster, _ := s.client.(*goredis.ClusterClient)
	if cluster != nil {
		node, err := cluster.MasterForKey(ctx, c.args[3].(string))
		if err != nil {
			c.cmd = c.make(ctx, c.args...)
			c.cmd.SetErr(err)
			return nil
		}
		on = node
	}
	var count *goredis.Cmd
	for range 2 {
		pipe := on.Pipeline()
		c.send(ctx, pipe)
		count = pipe.Do(ctx, "WAIT", s.wait, s.waitFor.Milliseconds())
		_, _ = pipe.Exec(ctx)
		if !c.unknown() {
			break
		}
	}
	if cluster != nil && goredis.HasErrorPrefix(c.cmd.Err(), "MOVED") {
		cluster.ReloadState(ctx) // this call has bypassed the cluster client, which would have done so
		c.cmd.SetErr(fmt.Errorf("%w; the cluster has moved these keys, ask again", errMoved))
	}
	n, err := count.Int()
	if err != nil {
		return explain(err)
	}
	if n < s.wait {
		return fmt.Errorf("redis: %d of %d replicas have confirmed it within %s; "+
			"ask again, and see whether they keep up", n, s.wait, s.waitFor)
	}
	return nil
}

var errMoved = errors.New("another node has them now")

// at returns the time that scripts use as now: 0 for the server's own.
func (s *Store) at() int64 {
	if s.clock == nil {
		return 0
	}
	return s.clock().UnixMicro()
}
