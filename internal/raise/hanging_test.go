package raise

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// deadMount hosts guards whose calls hang until it is closed, whatever their
// context says.
type deadMount struct {
	closed  chan struct{}
	hanging atomic.Int64
}

func (d *deadMount) Guard(context.Context, string) (guard.Guard, error) {
	d.hanging.Add(1)
	defer d.hanging.Add(-1)
	<-d.closed
	return nil, guard.ErrElsewhere
}

// TestHangingGuardsDoNotPileUp: items name guards on a dead mount again and
// again. The process keeps a limited number of hanging calls, says so, and
// raises fences again when the mount is back.
func TestHangingGuardsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadMount{closed: make(chan struct{})}
		r := Raiser{Host: d, Timeout: time.Second}
		ask := []Ask{{Stamp: fence.Stamp{Key: "k", Token: 1}, Target: "/dead/mount"}}
		refused := 0
		for range cap(inProcess) + 10 {
			if err := r.Named(t.Context(), ask)[0].Err; errors.Is(err, errTooMany) {
				refused++
			} else if !errors.Is(err, errHangs) {
				t.Fatalf("a guard that hangs: %v", err)
			}
		}
		if n := int(d.hanging.Load()); n != cap(inProcess) || refused != 10 {
			t.Errorf("%d calls hang and %d were refused, want %d and 10", n, refused, cap(inProcess))
		}
		close(d.closed)
		synctest.Wait()
		if err := r.Named(t.Context(), ask)[0].Err; !errors.Is(err, guard.ErrNotAllowed) {
			t.Errorf("after the mount is back: %v, want %v", err, guard.ErrNotAllowed)
		}
	})
}
