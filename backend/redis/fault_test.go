package redis

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// downAfter passes scripts on. After so many the port is closed. The reply to
// the last script before that is lost.
type downAfter struct {
	calls int64
	seen  atomic.Int64
}

func (*downAfter) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (d *downAfter) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		n := d.seen.Add(1)
		if n > d.calls {
			cmd.SetErr(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
			return cmd.Err()
		}
		err := next(ctx, cmd)
		if n == d.calls && err == nil {
			cmd.SetErr(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
		}
		return cmd.Err()
	}
}

func (*downAfter) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestAServerThatGoesDownIsAFaultOnlyIfNothingWasSent: the reply to the first
// try is lost, and then the port is closed. The first try may have counted.
func TestAServerThatGoesDownIsAFaultOnlyIfNothingWasSent(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	known := New(dial(t, server), nil) // the server knows the script from here on
	defer known.Close()
	if a := one(t.Context(), known, claim("down/script", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, inline := range []bool{false, true} { // whether the caller makes the first try itself
		for calls := range int64(2) {
			client := dialWith(t, server, &goredis.Options{MaxRetries: -1})
			st := New(client, nil)
			defer st.Close()
			st.bounded = inline
			st.slow.Store(false)
			client.AddHook(&downAfter{calls: calls})
			a := one(t.Context(), st, claim(fmt.Sprintf("down/%t", inline), "ann"))
			if a.Err == nil || store.IsFault(a.Err) != (calls == 0) {
				t.Errorf("inline %t, down after %d calls: a fault: %t; %v", inline, calls, store.IsFault(a.Err), a.Err)
			}
		}
	}
}
