package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/file" // the proxy keeps its marks in files
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// currentKeys is how many owners write in turn.
const currentKeys = 100

// benchCurrent measures the cost of the current-owner check in a proxy. It
// writes through a proxy that asks the store, and through one that does not, in
// turn.
func benchCurrent(ctx context.Context, b *bench) error {
	stores, err := b.telling(ctx)
	if err != nil {
		return err
	}
	t := b.newTable()
	t.columns = []column{
		{"without", "marks alone", asTime},
		{"with", "current owner", asTime},
		{"ratio", "ratio", asRatio},
		{"questions", "questions to the store, per 1,000 writes", digits},
		{"each", "per second", digits},
	}
	for _, st := range stores {
		values, err := b.currentOn(ctx, st.name, st.url)
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		t.Rows = append(t.Rows, row{st.name, values})
	}
	b.add(t)
	return nil
}

// questions counts a follower's reads of a store.
type questions struct {
	store.Store
	n atomic.Int64
}

func (q *questions) Get(ctx context.Context, key string) (tenure.Record, error) {
	q.n.Add(1)
	return q.Store.Get(ctx, key)
}

// Acts passes on the store's announcements.
func (q *questions) Acts(ctx context.Context) (<-chan string, error) {
	return q.Store.(store.Announcer).Acts(ctx)
}

func (b *bench) currentOn(ctx context.Context, name, at string) (map[string]float64, error) {
	client, err := croft.Open(ctx, at, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	asked := &questions{Store: client.Store()}
	follower, err := current.Follow(asked, nil)
	if err != nil {
		return nil, err
	}
	defer follower.Close()
	without, end, err := b.fenced(name+"-without", client, nil)
	if err != nil {
		return nil, err
	}
	defer end()
	with, end, err := b.fenced(name+"-with", client, follower)
	if err != nil {
		return nil, err
	}
	defer end()
	stamps := make([]fence.Stamp, b.count(currentKeys))
	for i := range stamps {
		l, err := client.Acquire(ctx, fmt.Sprintf("current/%d", i), &croft.LeaseOptions{TTL: time.Minute})
		if err != nil {
			return nil, err
		}
		stamps[i] = l.Stamp()
	}
	var took [2][]time.Duration
	writes := b.count(20000)
	before, start := int64(0), time.Now()
	for i := range writes + len(stamps) {
		if i == len(stamps) { // by now both proxies know all resources
			before, start = asked.n.Load(), time.Now()
			took = [2][]time.Duration{}
		}
		for p, proxy := range []string{without, with} {
			d, err := fencedPut(ctx, fmt.Sprint(proxy, "/r/", i%len(stamps)), stamps[i%len(stamps)])
			if err != nil {
				return nil, err
			}
			took[p] = append(took[p], d)
		}
	}
	n := float64(asked.n.Load() - before)
	values := map[string]float64{
		"without": float64(median(took[0])), "with": float64(median(took[1])),
		"questions": 1000 * n / float64(writes), "each": n / time.Since(start).Seconds(),
	}
	values["ratio"] = values["with"] / values["without"]
	return values, nil
}

// fenced starts a proxy in front of a service that does nothing. It keeps its
// marks in files.
func (b *bench) fenced(name string, client *croft.Client, who guard.Current) (address string, end func(), err error) {
	folder, err := b.folder("current-" + name)
	if err != nil {
		return "", nil, err
	}
	marks, err := httpfence.MarksAt(filepath.Join(folder, "{resource}"))
	if err != nil {
		return "", nil, err
	}
	rule, err := httpfence.ParseRule("/r/{id} as " + name + "/{id}")
	if err != nil {
		return "", nil, err
	}
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	upstream, err := url.Parse(service.URL)
	if err != nil {
		return "", nil, err
	}
	o := httpfence.ProxyOptions{Options: httpfence.Options{
		Rules: []httpfence.Rule{rule}, Marks: marks, Client: client, Idle: time.Hour, Current: who,
	}}
	proxy, err := httpfence.NewProxy(upstream, o)
	if err != nil {
		service.Close()
		return "", nil, err
	}
	front := httptest.NewServer(proxy)
	return front.URL, func() {
		front.Close()
		_ = proxy.Close(context.Background())
		service.Close()
	}, nil
}

// fencedPut writes once under a stamp.
func fencedPut(ctx context.Context, target string, stamp fence.Stamp) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, http.NoBody)
	if err != nil {
		return 0, err
	}
	httpfence.SetStamp(req.Header, stamp)
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("answered %s: %w", resp.Status, httpfence.RefusalIn(resp))
	}
	return time.Since(start), nil
}
