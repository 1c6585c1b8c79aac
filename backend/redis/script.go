package redis

import (
	"context"
	"crypto/sha1" // it is how Redis names scripts
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/store"
)

//go:embed apply.lua
var applySource string

//go:embed read.lua
var readSource string

//go:embed keys.lua
var keysSource string

// The scripts are made when they are first needed. That takes milliseconds, and
// most programs that link this package never use it.
var (
	applyScript = sync.OnceValue(func() *script { return newScript(applySource) })
	readScript  = sync.OnceValue(func() *script { return newScript(readSource) })
	keysScript  = sync.OnceValue(func() *script { return newScript(keysSource) })
)

// named replaces the names in a script by their values. Lines like
// "--# NAME 1, OTHER '>d'" define them. It removes these lines.
func named(source string) string {
	var (
		namesLine  = regexp.MustCompile(`(?m)^--# .*\n`)
		namedValue = regexp.MustCompile(`\b([A-Z][A-Z_]*) (\d+|'[^']*')`)
		upperName  = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
	)
	values := map[string]string{}
	for _, line := range namesLine.FindAllString(source, -1) {
		for _, m := range namedValue.FindAllStringSubmatch(line, -1) {
			values[m[1]] = m[2]
		}
	}
	return upperName.ReplaceAllStringFunc(namesLine.ReplaceAllString(source, ""), func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return name
	})
}

// script is a Lua script. It is sent by its hash, and in full to a server that
// does not know it yet.
type script struct{ source, hash string }

func newScript(source string) *script {
	source = named(source)
	sum := sha1.Sum([]byte(source)) // it is how Redis names scripts
	return &script{source, hex.EncodeToString(sum[:])}
}

// call is one run of a script. Every try makes a new command.
type call[T goredis.Cmder] struct {
	script *script
	args   []any // EVALSHA, hash, the number of keys, keys, arguments
	make   func(ctx context.Context, args ...any) T
	once   bool // the client must not send it again if the reply is lost
	cmd    T    // of the last try
}

// newCall makes a call without its keys and arguments, and reserves room for
// them. The caller appends them to args.
func newCall[T goredis.Cmder](s *script, make_ func(ctx context.Context, args ...any) T, keys, arguments int) *call[T] {
	c := &call[T]{script: s, make: make_, args: make([]any, 3, 3+keys+arguments)}
	c.args[0], c.args[1], c.args[2] = "evalsha", s.hash, keys
	return c
}

// send sends the call once. If the server does not know the script, nothing
// happens there.
func (c *call[T]) send(ctx context.Context, on sender) {
	c.cmd = c.make(ctx, c.args...)
	var cmd goredis.Cmder = c.cmd
	if c.once {
		cmd = untried{cmd}
	}
	_ = on.Process(ctx, cmd) // the error is also in the command
}

// sender is a client or a pipeline.
type sender interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}

// untried is a command that go-redis does not send again by itself.
type untried struct{ goredis.Cmder }

// NoRetry forbids go-redis to try again.
func (untried) NoRetry() bool { return true }

// unknown reports whether the server did not know the script. If so, the next
// send includes the whole script.
func (c *call[T]) unknown() bool {
	if err := c.cmd.Err(); err == nil || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	c.args[0], c.args[1] = "eval", c.script.source
	return true
}

// run sends the call, and once more if the server does not know the script.
func (c *call[T]) run(ctx context.Context, on sender) {
	if c.send(ctx, on); c.unknown() {
		c.send(ctx, on)
	}
}

// runAll sends calls that do not depend on each other in one round trip, or in
// two if a server does not know the script.
func runAll[T goredis.Cmder](ctx context.Context, client goredis.UniversalClient, calls []*call[T]) {
	if len(calls) == 1 {
		calls[0].run(ctx, client)
		return
	}
	pipe := client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	pipe = client.Pipeline()
	for _, c := range calls {
		if c.unknown() {
			c.send(ctx, pipe)
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}

// replied reports whether an error is the server's reply. Otherwise there was
// no reply.
func replied(err error) bool {
	var said goredis.Error
	return errors.As(err, &said)
}

// noRight is the advice for a user without the necessary permissions.
const noRight = "this user needs the commands eval, evalsha, time, hget, hmget, hset, hdel, del, pexpireat, pttl, " +
	"zadd, zrem, zscan, zrangebyscore, zrevrange, publish, pubsub, subscribe, unsubscribe, ping and scan, " +
	"on keys and channels that begin with the store's prefix; with ?wait= it also needs the command wait; " +
	"for a guard it also needs the commands exists and hstrlen, those of the guarded writes, and the guarded keys"

// advice says what to do about errors of Redis, by the words they begin with. A
// fault stays until somebody acts, and Redis reports it before a script's first
// write.
var advice = []struct {
	code, meaning string
	fault         bool
}{
	{"NOAUTH", "give a password in the URL", true},
	{"WRONGPASS", "the user or the password is wrong", true},
	{"NOPERM", noRight, true},
	{"DB index is out of range", "the server has no database of this number; name another in the URL", true},
	{"SELECT is not allowed in cluster mode", "a cluster has only database 0; name that in the URL", true},
	{"The user executing the script", noRight, false}, // about a command in a script
	{"ACL failure in script", noRight, false},         // the same since Redis 7.2
	{"READONLY", "this server is a replica; connect to its primary", false},
	{"OOM", "the server is out of memory; raise maxmemory", true},
	{"LOADING", "the server is reading its data; ask again", false},
	{"BUSY", "another program's script keeps the server busy; ask again, and see SCRIPT KILL", false},
	{"MISCONF", "the server cannot write to its disk and so accepts no changes; make room for it", true},
	{"NOREPLICAS", "the server demands more replicas than it has (min-replicas-to-write); connect them", false},
	{"MASTERDOWN", "this server is a replica that has lost its primary; connect to the primary", false},
	{"CLUSTERDOWN", "the cluster has lost nodes; ask again when they are back", false},
	{"TRYAGAIN", "the cluster is moving these keys; ask again", false},
	{"MOVED", "this server is part of a cluster; add ?cluster=true to the URL", false},
	{"CROSSSLOT", "these keys live on different nodes; give them a common {tag}", false},
	{"unknown command", "this server is not Redis 5 or newer, or a proxy keeps commands from it", true},
}

// explain adds advice to an error of Redis.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range advice {
		if begins(err, a.code) {
			return fmt.Errorf("redis: %w; %s", err, a.meaning)
		}
	}
	return fmt.Errorf("redis: %w", err)
}

// explainStore is explain for a call of a store that only reads, or that was
// sent once. It tells faults from unknown outcomes.
func explainStore(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range advice {
		if a.fault && goredis.HasErrorPrefix(err, a.code) {
			return store.Fault(explain(err))
		}
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, new(*tls.CertificateVerificationError)) {
		return store.Unreachable(explain(err))
	}
	return explain(err)
}

// begins reports whether an error of Redis begins with code. Redis 6 and older
// put other words before the error of a command in a script.
func begins(err error, code string) bool {
	return goredis.HasErrorPrefix(err, code) || strings.Contains(err.Error(), ": -"+code+" ")
}

func trimName(err error) string { return strings.TrimPrefix(err.Error(), "redis: ") }
