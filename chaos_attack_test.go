package croft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

type chaosStore struct {
	*tap
	rng *rand.Rand
	mu  sync.Mutex
}

func (s *chaosStore) n(k int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(k)
}

func (s *chaosStore) Pipelines() bool { return true }

func (s *chaosStore) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if s.n(5) == 0 {
		return nil, errDown
	}
	ctx2, cancel := context.WithCancel(ctx)
	if s.n(3) == 0 {
		d := time.Duration(s.n(3000)) * time.Millisecond
		go func() {
			defer cancel()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		}()
	} else {
		context.AfterFunc(ctx, cancel)
	}
	return s.tap.Store.(store.Watcher).Watch(ctx2, key)
}

func chaos(t *testing.T, seed uint64, calm bool) {
	inBubble(t, func(r *rig) {
		tp := &tap{Store: r.st}
		s := &chaosStore{tap: tp, rng: rand.New(rand.NewPCG(seed, 1))}
		fault := func(ctx context.Context, batch []tenure.Request) []store.Answer {
			switch k := s.n(20); {
			case k == 0:
				return hang(ctx, batch)
			case k == 1:
				return down(ctx, batch)
			case k == 2:
				answers := r.st.Apply(ctx, batch)
				answers[s.n(len(answers))] = store.Failed(1, errDown)[0]
				return answers
			case k == 3: // done late, lost
				time.Sleep(time.Duration(s.n(2000)) * time.Millisecond)
				r.st.Apply(ctx, batch)
				return down(ctx, batch)
			case k < 12:
				time.Sleep(time.Duration(s.n(50)) * time.Millisecond)
			}
			return nil
		}
		tp.set(fault)
		var ev events
		clients := []*Client{r.client(s, &Options{Observe: ev.observe, Owner: "a"}), r.client(s, &Options{Observe: ev.observe, Owner: "b"})}
		ctx := r.Context()
		work := func(c *Client, w int) {
			var n = s.n
			for range 12 {
				o := &LeaseOptions{TTL: 3 * time.Second}
				switch n(4) {
				case 0:
				case 1:
					o.WaitFor = time.Duration(n(100)) * time.Millisecond
				case 2:
					o.WaitFor = time.Duration(n(8000)) * time.Millisecond
				case 3:
					o.WaitFor = Forever
				}
				if n(3) == 0 {
					o.Every = time.Duration(1+n(3)) * 2 * time.Second
				}
				if n(5) == 0 {
					o.HoldFor = time.Second
				}
				if n(4) == 0 {
					o.Guards = guardsOf(&slowGuard{target: "mem:g" + fmt.Sprint(w), raise: func(ctx context.Context, st fence.Stamp) error {
						switch n(5) {
						case 0:
							return &fence.StaleError{Newest: fence.Mark{Key: st.Key, Token: st.Token + 3}}
						case 1:
							return errDown
						case 2:
							time.Sleep(time.Duration(n(4000)) * time.Millisecond)
						}
						return nil
					}})
				}
				if n(6) == 0 {
					o.MaxHold = 2 * time.Second
				}
				if n(6) == 0 {
					o.StallAfter = time.Second
				}
				bounded, cancel := context.WithTimeout(ctx, time.Duration(n(20000))*time.Millisecond)
				key := fmt.Sprint("jobs/", n(3))
				l, err := c.Acquire(bounded, key, o)
				if err != nil {
					cancel()
					if errors.Is(err, ErrClosed) {
						return
					}
					continue
				}
				if d := l.Remaining() - time.Until(l.Record().Deadline); d > 0 {
					r.Errorf("deadline too late by %s", d)
				}
				time.Sleep(time.Duration(n(1500)) * time.Millisecond)
				switch n(6) {
				case 0:
					_ = l.Report(bounded, "x")
				case 1:
					time.Sleep(time.Duration(n(6000)) * time.Millisecond)
				case 2:
					_, _ = c.Revoke(bounded, key, ByHand{Note: "x"})
				case 3:
					<-l.Done()
					if again, err := l.Resume(bounded); err == nil {
						l = again
					}
				}
				switch n(4) {
				case 0:
					_ = l.Release(bounded)
				case 1:
					short, cancel := context.WithTimeout(ctx, time.Duration(n(30))*time.Millisecond)
					_ = l.Fail(short)
					cancel()
				case 2:
					go func() { _ = l.Release(ctx) }()
					_ = l.Release(ctx)
				default:
					_ = l.Release(ctx)
				}
				cancel()
				if err := l.Err(); err == nil {
					r.Error("released and alive")
				}
				select {
				case <-l.Done():
				default:
					r.Error("the context lives")
				}
			}
		}
		var all sync.WaitGroup
		for _, c := range clients {
			for w := range 6 {
				all.Go(func() { work(c, w) })
			}
		}
		if !calm {
			time.Sleep(time.Duration(s.n(20000)) * time.Millisecond)
			start := time.Now()
			_ = clients[0].Close()
			if d := time.Since(start); d > 6*time.Second {
				r.Errorf("Close took %s", d)
			}
		}
		all.Wait()
		tp.set(nil)
		time.Sleep(2 * time.Minute)
		for _, c := range clients {
			wantNothingLeft(r, c)
			c.mu.Lock()
			if len(c.watches) > 0 || c.busy != 0 {
				r.Errorf("%d watches, %d busy", len(c.watches), c.busy)
			}
			c.mu.Unlock()
		}
	})
}

func TestChaosAttack(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEEDS"))
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	for i := from; i < from+max(n, 5); i++ {
		t.Run(fmt.Sprint(i), func(t *testing.T) { chaos(t, uint64(i), i%2 == 0) })
	}
}
