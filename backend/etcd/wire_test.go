package etcd

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// wire is what goes between a client and etcd: it counts calls, and loses their replies when told to.
type wire struct {
	events atomic.Int64 // that the client was told of
	mu     sync.Mutex
	calls  map[string]int // by method
	losing bool
	broken func() bool    // says of each call whether its connection breaks
	late   bool           // transactions are given up before they are sent,
	held   []func() error // and sent when they are delivered
}

// wired is a client whose calls go over a wire.
func wired(tb testing.TB, c *testenv.EtcdCluster) (*clientv3.Client, *wire) {
	w := &wire{calls: map[string]int{}}
	client := dial(tb, c, func(config *clientv3.Config) {
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream))
	})
	return client, w
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w.count(method)
	if strings.HasSuffix(method, "/Txn") && w.hold(func() error { return call(context.WithoutCancel(ctx), method, req, reply, conn, opts...) }) {
		return status.Error(codes.Unavailable, "no answer in time")
	}
	err := call(ctx, method, req, reply, conn, opts...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil && w.broken() {
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	if w.losing && strings.HasSuffix(method, "/Txn") {
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return err
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w.count(method)
	stream, err := open(ctx, desc, conn, method, opts...)
	return counted{stream, w}, err
}

// counted counts the events that a client is told of.
type counted struct {
	grpc.ClientStream
	w *wire
}

func (s counted) RecvMsg(msg any) error {
	err := s.ClientStream.RecvMsg(msg)
	if resp, is := msg.(*pb.WatchResponse); is && err == nil {
		s.w.events.Add(int64(len(resp.Events)))
	}
	return err
}

func (w *wire) count(method string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[method[strings.LastIndexByte(method, '/')+1:]]++
}

// breaks lets the connection of every second call break before it is answered.
func (w *wire) breaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	w.broken = func() bool {
		n++
		return n%2 == 1
	}
}

// lose loses the replies to all transactions from now on, or no more.
func (w *wire) lose(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = yes
}

// delay gives up transactions from now on, or no more. They reach etcd when they are delivered.
func (w *wire) delay(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = yes
}

func (w *wire) hold(send func() error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late {
		w.held = append(w.held, send)
	}
	return w.late
}

// deliver lets etcd have what was given up.
func (w *wire) deliver(tb testing.TB) {
	tb.Helper()
	for _, send := range w.held {
		if err := send(); err != nil {
			tb.Fatal(err)
		}
	}
}

// inTime counts the calls that something makes, and says whether it was so fast that none can have been given up and made again.
func (w *wire) inTime(f func()) (calls map[string]int, fast bool) {
	began := time.Now()
	calls = w.during(f)
	return calls, time.Since(began) < requestTimeout
}

// during counts the calls that something makes.
func (w *wire) during(f func()) map[string]int {
	w.mu.Lock()
	w.calls = map[string]int{}
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.calls) // what goes on in the background is still counted
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// must sends requests that are to succeed, and again those without an answer: on a busy machine a call may take longer than a store waits for it.
func must(tb testing.TB, st store.Store, requests ...tenure.Request) []store.Answer {
	tb.Helper()
	answers := make([]store.Answer, len(requests))
	left := make([]int, len(requests))
	for i := range left {
		left[i] = i
	}
	for end := time.Now().Add(testenv.Patience); len(left) > 0; {
		again := make([]tenure.Request, len(left))
		for n, i := range left {
			again[n] = requests[i]
		}
		var open []int
		for n, a := range st.Apply(tb.Context(), again) {
			i := left[n]
			if answers[i] = a; errors.Is(a.Err, store.ErrUnknown) && !errors.Is(a.Err, ErrDamaged) && !errors.Is(a.Err, ErrClosed) && time.Now().Before(end) {
				open = append(open, i)
			} else if a.Err != nil {
				tb.Fatalf("%s of %q: %v", requests[i].Verb, requests[i].Key, a.Err)
			}
		}
		left = open
	}
	return answers
}

// open makes a store that ends with the test.
func open(tb testing.TB, client *clientv3.Client, prefix string) *Store {
	tb.Helper()
	s := New(client, &Options{Prefix: prefix, SweepEvery: -1})
	s.timeout = testenv.Patience // a call that is late on a busy machine has an answer all the same
	tb.Cleanup(func() { s.Close() })
	return s
}
