package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed apply.lua
var applySource string

//go:embed read.lua
var readSource string

var applyScript, readScript = newScript(applySource), newScript(readSource)

var (
	namesLine   = regexp.MustCompile(`(?m)^--# .*\n`)
	namedNumber = regexp.MustCompile(`\b([A-Z][A-Z_]*) (\d+)`)
	upperName   = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
)

// named replaces the names of numbers in a script by the numbers, as its lines "--# NAME 1, OTHER 2" say.
func named(source string) string {
	numbers := map[string]string{}
	for _, line := range namesLine.FindAllString(source, -1) {
		for _, m := range namedNumber.FindAllStringSubmatch(line, -1) {
			numbers[m[1]] = m[2]
		}
	}
	return upperName.ReplaceAllStringFunc(namesLine.ReplaceAllString(source, ""), func(name string) string {
		if number, ok := numbers[name]; ok {
			return number
		}
		return name
	})
}

// script is a Lua script that is sent by its hash, and in full to a server that does not have it yet.
type script struct{ *goredis.Script }

func newScript(source string) *script { return &script{goredis.NewScript(named(source))} }

// call is one run of a script.
type call struct {
	keys []string
	args []any
	cmd  *goredis.Cmd
}

// run makes one call. A server that does not know the script has done nothing.
func (s *script) run(ctx context.Context, on goredis.Scripter, c *call) {
	c.cmd = on.EvalSha(ctx, s.Hash(), c.keys, c.args...)
	if unknownScript(c.cmd.Err()) {
		c.cmd = s.Eval(ctx, on, c.keys, c.args...)
	}
}

// runAll makes calls that do not depend on each other in one round trip, or in two if a server does not know the script.
func (s *script) runAll(ctx context.Context, client goredis.UniversalClient, calls []*call) {
	if len(calls) == 1 {
		s.run(ctx, client, calls[0])
		return
	}
	pipe := client.Pipeline()
	for _, c := range calls {
		c.cmd = pipe.EvalSha(ctx, s.Hash(), c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	pipe = client.Pipeline()
	for _, c := range calls {
		if unknownScript(c.cmd.Err()) {
			c.cmd = s.Eval(ctx, pipe, c.keys, c.args...)
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}

func unknownScript(err error) bool { return err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") }

// reply is what a script returns: the time, and n texts.
func (c *call) reply(n int) (time.Time, []string, error) {
	values, err := c.cmd.Slice()
	if err != nil {
		return time.Time{}, nil, explain(err)
	}
	odd := func(what string) (time.Time, []string, error) {
		return time.Time{}, nil, fmt.Errorf("redis: a script returned %s; is a proxy between that changes replies?", what)
	}
	if len(values) != n+1 {
		return odd(fmt.Sprintf("%d values, not %d", len(values), n+1))
	}
	now, ok := values[0].(int64)
	if !ok {
		return odd("no time")
	}
	texts := make([]string, n)
	for i, v := range values[1:] {
		if texts[i], ok = v.(string); !ok {
			return odd(fmt.Sprintf("a %T where it returns text", v))
		}
	}
	return moment(now), texts, nil
}

// await calls f, and leaves it behind when ctx ends: go-redis watches deadlines at best, and cancellations not at all. f must touch nothing of the caller's.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		select {
		case r := <-done: // both at once: what is known counts
			return r.value, r.err
		default:
		}
		var none T
		return none, over(ctx)
	}
}

// over is why ctx has ended: its error, and its cause if that says more.
func over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// advice says what to do about what Redis answers, by the answer's first word.
var advice = []struct{ code, meaning string }{
	{"NOAUTH", "give a password in the URL"},
	{"WRONGPASS", "the user or the password is wrong"},
	{"NOPERM", "this user needs the commands eval, evalsha, time, hmget, hset, hdel, pexpireat, pttl, zadd, zrem, zrange, zrangebyscore, del, publish, subscribe and scan"},
	{"READONLY", "this server is a replica; connect to its primary"},
	{"OOM", "the server is out of memory; raise maxmemory"},
	{"LOADING", "the server is reading its data; ask again"},
	{"MISCONF", "the server cannot write to its disk and so accepts no changes; make room for it"},
	{"CLUSTERDOWN", "the cluster has lost nodes; ask again when they are back"},
	{"MOVED", "this server is part of a cluster; add ?cluster=true to the URL"},
	{"CROSSSLOT", "these keys live on different nodes; give them a common {tag}"},
	{"WRONGTYPE", "another program uses this key; choose another prefix"},
	{"ERR unknown command", "this server is not Redis 5 or newer, or a proxy keeps commands from it"},
}

// explain adds to what Redis answers what to do about it.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range advice {
		if goredis.HasErrorPrefix(err, a.code) {
			return fmt.Errorf("redis: %w; %s", err, a.meaning)
		}
	}
	return fmt.Errorf("redis: %w", err)
}

func trimName(err error) string { return strings.TrimPrefix(err.Error(), "redis: ") }
