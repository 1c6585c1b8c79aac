package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// chunkSize is how many requests one script carries out. While it runs, Redis serves nobody else.
const chunkSize = 256

// chunk is what one script carries out: requests of one namespace.
type chunk struct {
	namespace string
	indexes   []int // of the requests in their batch
	wave      int
}

// Apply carries out requests in one round trip: those of one namespace in scripts of at most 256, those of others beside them. Only requests that follow 256 others and share a key with them wait
// for their own. A request that ctx's end overtakes may still take effect after Apply has returned; its answer is unknown, and the law makes sending it again safe.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	waves := split(requests, answers)
	if len(waves) == 0 {
		return answers
	}
	err := s.usable(ctx)
	var got []store.Answer
	if err == nil {
		got, err = s.carryOut(ctx, waves, requests)
	}
	for i := range answers {
		switch {
		case answers[i].Err != nil: // bad input
		case err != nil:
			answers[i].Err = store.Unknown(err)
		default:
			answers[i] = got[i]
		}
	}
	return answers
}

// prompt is how soon a server answers that can be waited for.
const prompt = 100 * time.Millisecond

// carryOut sends all waves. go-redis does not watch for cancellations, so a call that might hang must be one that can be left behind, in a goroutine of its own; but that costs
// as much again as the call. A server that was prompt the last time is therefore waited for: if it hangs now, this once ctx's end is noticed only after the client's read timeout.
func (s *Store) carryOut(ctx context.Context, waves [][]*chunk, requests []tenure.Request) ([]store.Answer, error) {
	waited := s.bounded && !s.slow.Load()
	all := func() ([]store.Answer, error) {
		began := time.Now()
		answers := make([]store.Answer, len(requests))
		for _, chunks := range waves {
			s.send(ctx, chunks, requests, answers)
		}
		if slow := time.Since(began) > prompt; slow != s.slow.Load() {
			s.slow.Store(slow)
		}
		return answers, nil
	}
	if waited || ctx.Done() == nil {
		return all()
	}
	requests = slices.Clone(requests) // the caller's are the caller's again when it is left behind
	return await(ctx, all)
}

// bounded reports whether a client gives up reading soon enough to be waited for.
func bounded(client goredis.UniversalClient) bool {
	const most = 5 * time.Second // go-redis's default
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().ReadTimeout > 0 && c.Options().ReadTimeout <= most
	case *goredis.ClusterClient:
		return c.Options().ReadTimeout > 0 && c.Options().ReadTimeout <= most
	}
	return false
}

// split divides a batch into waves of chunks. Within a wave no key is in two chunks, so that requests on one key are carried out in their order whatever becomes of a chunk.
func split(requests []tenure.Request, answers []store.Answer) [][]*chunk {
	open := map[string]*chunk{}   // by namespace
	placed := map[string]*chunk{} // by key
	var all []*chunk
	last := -1
	for i, req := range requests {
		if err := req.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		namespace := fence.Namespace(req.Key)
		c := open[namespace]
		if c == nil || len(c.indexes) == chunkSize {
			c = &chunk{namespace: namespace}
			open[namespace] = c
			all = append(all, c)
		}
		if before := placed[req.Key]; before != nil && before != c {
			c.wave = max(c.wave, before.wave+1)
		}
		c.indexes = append(c.indexes, i)
		placed[req.Key] = c
		last = max(last, c.wave)
	}
	waves := make([][]*chunk, last+1)
	for _, c := range all {
		waves[c.wave] = append(waves[c.wave], c)
	}
	return waves
}

// send carries out chunks that do not depend on each other.
func (s *Store) send(ctx context.Context, chunks []*chunk, requests []tenure.Request, answers []store.Answer) {
	calls := make([]*call, len(chunks))
	for n, c := range chunks {
		calls[n] = s.call(c, requests)
	}
	if s.wait == 0 {
		s.apply.runAll(ctx, s.client, calls)
	}
	for n, c := range chunks {
		var unconfirmed error
		if s.wait > 0 {
			unconfirmed = s.confirmed(ctx, calls[n])
		}
		now, texts, err := calls[n].reply(2 * len(c.indexes))
		for k, i := range c.indexes {
			if err != nil {
				answers[i].Err = store.Unknown(err)
				continue
			}
			answers[i] = answer(requests[i], now, texts[2*k], texts[2*k+1])
			if unconfirmed != nil && answers[i].Err == nil {
				answers[i] = store.Answer{Err: store.Unknown(unconfirmed)}
			}
		}
	}
}

// call makes the call of a chunk.
func (s *Store) call(c *chunk, requests []tenure.Request) *call {
	keys := make([]string, 0, 1+len(c.indexes))
	keys = append(keys, s.names.index(c.namespace))
	packing := make(packing, 0, 3+160*len(c.indexes))
	packing.array(len(c.indexes))
	for _, i := range c.indexes {
		keys = append(keys, s.names.record(requests[i].Key))
		packing.request(&requests[i])
	}
	return &call{keys: keys, args: []any{s.retention.Microseconds(), s.at(), s.flags, []byte(packing)}}
}

// confirmed makes a call and waits until replicas have its changes. WAIT counts what its own connection has written, so both go over one.
func (s *Store) confirmed(ctx context.Context, c *call) error {
	on := s.client
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, c.keys[0])
		if err != nil {
			c.cmd = goredis.NewCmd(ctx)
			c.cmd.SetErr(err)
			return nil
		}
		on = node
	}
	var count *goredis.Cmd
	for try := range 2 {
		pipe := on.Pipeline()
		if try == 0 {
			c.cmd = pipe.EvalSha(ctx, s.apply.Hash(), c.keys, c.args...)
		} else {
			c.cmd = s.apply.Eval(ctx, pipe, c.keys, c.args...)
		}
		count = pipe.Do(ctx, "WAIT", s.wait, s.waitFor.Milliseconds())
		_, _ = pipe.Exec(ctx)
		if !unknownScript(c.cmd.Err()) {
			break
		}
	}
	n, err := count.Int()
	if err != nil {
		return explain(err)
	}
	if n < s.wait {
		return fmt.Errorf("redis: %d of %d replicas have confirmed it within %s; ask again, and see whether they keep up", n, s.wait, s.waitFor)
	}
	return nil
}

// at is the time that scripts are to take for now: "" for the server's own.
func (s *Store) at() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock().UnixMicro(), 10)
}
