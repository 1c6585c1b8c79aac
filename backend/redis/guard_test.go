package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

var guarded atomic.Int64

// guardHarness makes guarded values on the shared server.
func guardHarness(open func(client goredis.UniversalClient, key string) (*Guard, error)) guardtest.Harness {
	return guardtest.Harness{SideBySide: true, Make: func(tb testing.TB) guardtest.Resource {
		server := testenv.Redis(tb)
		client := dial(tb, server)
		key := fmt.Sprintf("%sguarded %d", server.Prefix(), guarded.Add(1))
		tb.Cleanup(func() { client.Del(context.Background(), key, markOf(key)) })
		handle := func(tb testing.TB) *Guard {
			g, err := open(client, key)
			if err != nil {
				tb.Fatal(err)
			}
			return g
		}
		return guardtest.Resource{
			Open: func(tb testing.TB) guardtest.Handle { return guardtest.Artifact(handle(tb)) },
			Read: func(ctx context.Context) ([]byte, bool, error) {
				content, err := client.Get(ctx, key).Bytes()
				if errors.Is(err, goredis.Nil) {
					return nil, false, nil
				}
				return content, err == nil, err
			},
			Signed: func(tb testing.TB, keys *signed.Keys) guardtest.Handle {
				g, err := OpenGuard(client, key, &GuardOptions{Keys: keys})
				if err != nil {
					tb.Fatal(err)
				}
				return guardtest.Artifact(g)
			},
		}
	}}
}

func openGuard(client goredis.UniversalClient, key string) (*Guard, error) {
	return OpenGuard(client, key, nil)
}

// TestGuardConformance runs the whole suite of guards.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness(openGuard))
}

func stamp(token fence.Token, grant int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: "jobs/daily", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant)), Seq: seq}
}

// TestCommandsAreCarriedOutOnlyForAnAdmittedStamp checks that all of the
// commands are carried out, or none.
func TestCommandsAreCarriedOutOnlyForAnAdmittedStamp(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	account, log := server.Prefix()+"account", server.Prefix()+"log"
	g, err := OpenGuard(client, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	pay := func(s fence.Stamp, amount int) ([]any, error) {
		return g.Do(ctx, s, Command{"HINCRBY", account, "balance", amount}, Command{"RPUSH", log, amount}, Command{"GET", server.Prefix() + "nothing"}, Command{"PING"})
	}
	replies, err := pay(stamp(20, 1, 1), 5)
	if err != nil || len(replies) != 4 || replies[0] != int64(5) || replies[1] != int64(1) || replies[2] != nil || replies[3] != "PONG" {
		t.Fatalf("an admitted write: %v, %v", replies, err)
	}
	for name, c := range map[string]struct {
		s    fence.Stamp
		want error
	}{
		"an older owner": {stamp(19, 2, 0), fence.ErrStale}, "a repeated write": {stamp(20, 1, 1), fence.ErrRepeated}, "another grant": {stamp(20, 2, 2), fence.ErrCollision},
	} {
		if _, err := pay(c.s, 100); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if balance := client.HGet(ctx, account, "balance").Val(); balance != "5" {
		t.Errorf("refused writes have changed the balance to %s", balance)
	}
	if n := client.LLen(ctx, log).Val(); n != 1 {
		t.Errorf("refused writes have left %d entries in the log", n-1)
	}
}

// TestACommandThatFailsIsNamed checks that the commands after it are not tried.
func TestACommandThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	key := server.Prefix() + "text"
	g, err := OpenGuard(client, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	replies, err := g.Do(ctx, stamp(20, 1, 0), Command{"SET", key, "text"}, Command{"INCR", key}, Command{"SET", key, "never"})
	var failed *CommandError
	if !errors.As(err, &failed) || failed.Index != 1 || failed.Command != "INCR" || failed.Err == nil || len(replies) != 1 {
		t.Fatalf("a command on a value of the wrong type: %v, %v", replies, err)
	}
	if got := client.Get(ctx, key).Val(); got != "text" {
		t.Errorf("after the failed command the value is %q", got)
	}
	if _, err := g.Do(ctx, stamp(20, 1, 0), Command{}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an empty command: %v, want invalid", err)
	}
	// The owner of the mark goes on.
	if _, err := g.Do(ctx, stamp(20, 1, 0), Command{"SET", key, "1"}, Command{"INCR", key}); err != nil {
		t.Error(err)
	}
}

// TestAGuardIsOpenedByURL checks that a guard's target opens the same guard.
func TestAGuardIsOpenedByURL(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ctx := t.Context()
	key := server.Prefix() + "report of today #1"
	mine, err := OpenGuard(dial(t, server), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	dial(t, server).Set(ctx, key, "before", 0)
	if receipt, err := mine.Write(ctx, stamp(20, 1, 0), strings.NewReader("content")); err != nil || receipt.Bytes != 7 || !receipt.Adopted {
		t.Errorf("the first guarded write of what was there: %+v, %v", receipt, err)
	}
	guardtest.ByURL(t, mine, "redis://localhost/0", "redis://localhost/0#", "redis:///0#k", "redis://:6379/0#k", "redis://#k", "redis://localhost/zero#k", "redis://localhost/0?retention=1h#k", "redis://ann:hunter2@localhost/0?nonsense=1#k")
	secret, err := guard.Open(ctx, "redis://ann:hunter2@localhost/0#k")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if strings.Contains(secret.Target(), "hunter2") || !strings.Contains(secret.Target(), "ann@") {
		t.Errorf("a target with a password is shown as %q", secret.Target())
	}
}

// TestGuardsBrokenOnPurposeAreCaught runs the suite on broken scripts.
func TestGuardsBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	testenv.Redis(t) // skips the test here where no server may run: no variant could fail
	for name, change := range map[string][2]string{
		"stale writes are admitted":    {"if new < old or mark.grant ~= stamp.grant then return false end", "if mark.grant ~= stamp.grant then return true, false end"},
		"numbers are compared as such": {"if #a ~= #b then return #a > #b end\n  return a > b", "return tonumber(a) > tonumber(b) + 1"},
		"the mark stays":               {"if advances then keep(stamp) end", ""},
		"a raise writes nothing down":  {"if advances then keep(stamp) end", "if advances and ARGV[1] == 'write' then keep(stamp) end"},
		"any key will do":              {"if stamp.key ~= mark.key then return false end", ""},
	} {
		source := strings.Replace(guardSource, change[0], change[1], 1)
		if source == guardSource {
			t.Fatalf("%s: the script does not say %q any more", name, change[0])
		}
		broken := newScript(source)
		open := func(client goredis.UniversalClient, key string) (*Guard, error) {
			g, err := OpenGuard(client, key, nil)
			g.lua = broken
			return g, err
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, caught := guardHarness(open), false
			resource := h.Make
			h.Make = func(tb testing.TB) guardtest.Resource {
				if caught {
					tb.SkipNow() // one check is enough
				}
				tb.Cleanup(func() { caught = tb.Failed() })
				return resource(tb)
			}
			if len(guardtest.Failures(t, h)) == 0 {
				t.Error("the suite has not noticed")
			}
		})
	}
}

// TestAGuardedWriteIsNotSentAgainByTheClient loses a reply. go-redis would send
// the command again, and carrying out commands twice may do harm.
func TestAGuardedWriteIsNotSentAgainByTheClient(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	var lose atomic.Bool
	// The other options keep their defaults: go-redis retries three times.
	client := dialWith(t, server, &goredis.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return losing{conn, &lose}, err
	}})
	key := server.Prefix() + "count"
	g, err := OpenGuard(client, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func() error {
		_, err := g.Do(t.Context(), stamp(20, 1, 0), Command{"INCR", key})
		return err
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	lose.Store(true)
	if err := add(); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a write whose reply was lost: %v, want unknown", err)
	}
	if n := dial(t, server).Get(t.Context(), key).Val(); n != "2" {
		t.Errorf("two calls have counted to %s", n)
	}
}

// losing is a connection that loses a reply when told to.
type losing struct {
	net.Conn
	lose *atomic.Bool
}

func (c losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestADamagedMarkAdmitsNothing damages each part of a mark. The error names
// the mark.
func TestADamagedMarkAdmitsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	for name, damage := range map[string]func(mark string){
		"no key":           func(mark string) { client.HDel(ctx, mark, "key") },
		"no token":         func(mark string) { client.HDel(ctx, mark, "token") },
		"token is no word": func(mark string) { client.HSet(ctx, mark, "token", "many") },
		"seq is no number": func(mark string) { client.HSet(ctx, mark, "seq", "last") },
		"it is no hash":    func(mark string) { client.Set(ctx, mark, "x", 0) },
	} {
		key := server.Prefix() + name
		g, err := OpenGuard(client, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(ctx, stamp(20, 1, 1), strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
		damage(g.mark)
		if _, err := g.Write(ctx, stamp(10, 2, 1), strings.NewReader("of an old owner")); !errors.Is(err, ErrMarkDamaged) {
			t.Errorf("%s: Write: %v, want damaged", name, err)
		}
		if _, err := g.Raise(ctx, stamp(30, 2, 1)); !errors.Is(err, ErrMarkDamaged) {
			t.Errorf("%s: Raise: %v, want damaged", name, err)
		}
		if _, err := g.Mark(ctx); !errors.Is(err, ErrMarkDamaged) {
			t.Errorf("%s: Mark: %v, want damaged", name, err)
		}
		if got := client.Get(ctx, key).Val(); got != "content" {
			t.Errorf("%s: the content is %q", name, got)
		}
	}
}

// TestACommandTooLongForAScriptChangesNothing checks that the guard refuses it
// beforehand. The script would fail after the mark has advanced and other
// commands have taken effect.
func TestACommandTooLongForAScriptChangesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client, ctx := dial(t, server), t.Context()
	key := server.Prefix() + "list"
	g, err := OpenGuard(client, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	push := func(n int) Command {
		c := Command{"RPUSH", key}
		for len(c) < n {
			c = append(c, "x")
		}
		return c
	}
	if _, err := g.Do(ctx, stamp(20, 1, 0), push(10), push(mostWords+1)); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a command of too many words: %v, want invalid", err)
	}
	if n := client.Exists(ctx, key, g.mark).Val(); n != 0 {
		t.Error("it has left something")
	}
	if _, err := g.Do(ctx, stamp(20, 1, 0), push(mostWords)); err != nil {
		t.Errorf("the longest command: %v", err)
	}
}

// TestARekeyThatIsSentAgainKeepsWhereItCameFrom sends the same rekey twice. The
// client does so when a reply is lost, and so does an operator after an unknown
// outcome.
func TestARekeyThatIsSentAgainKeepsWhereItCameFrom(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	g, err := OpenGuard(dial(t, server), server.Prefix()+"moved", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, first := t.Context(), stamp(20, 1, 0)
	if _, err := g.Raise(ctx, first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mark, err := g.Rekey(ctx, "tests/elsewhere", "ann", "the job was split")
		if want := (fence.Mark{Key: "tests/elsewhere", Token: first.Token}); err != nil || mark != want {
			t.Fatalf("%+v, %v, want %+v", mark, err, want)
		}
	}
	if r, err := g.Rekeyed(ctx); err != nil || r.From != first.Key {
		t.Errorf("moved from %q, %v, want from %q", r.From, err, first.Key)
	}
	if _, err := g.Rekey(ctx, "tests/elsewhere", "bob", "and again"); err != nil {
		t.Fatal(err)
	}
	if r, err := g.Rekeyed(ctx); err != nil || r.From != "tests/elsewhere" || r.Actor != "bob" {
		t.Errorf("another rekey is kept as %+v, %v", r, err)
	}
}
