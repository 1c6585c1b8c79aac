package drill

import (
	"testing"
	"time"
)

// TestShortStallsAddUp: several short stalls delay the end of a lease as much
// as a long one.
func TestShortStallsAddUp(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	now := time.Now()
	stopped := func(all ...lost) time.Duration {
		s := &stall{quit: make(chan struct{}), over: ended}
		for _, l := range all {
			s.add(l)
		}
		return s.stop()
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		want time.Duration
		lost []lost
	}{
		{0, nil},
		{0, []lost{{now, time.Millisecond}, {now, -stallTick}}},
		{300 * time.Millisecond, []lost{{ago(2), 100 * time.Millisecond}, {ago(1), 200 * time.Millisecond}}},
		{2 * time.Second, []lost{{ago(time.Hour), 2 * time.Second}, {now, 100 * time.Millisecond}}},
		{200 * time.Millisecond, []lost{{ago(time.Hour), 100 * time.Millisecond}, {now, 200 * time.Millisecond}}},
	} {
		if got := stopped(c.lost...); got != c.want {
			t.Errorf("of %v: %s, want %s", c.lost, got, c.want)
		}
	}
}
