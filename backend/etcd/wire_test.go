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

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// wire is between a client and etcd. It counts calls, and loses or delays them
// when told to.
type wire struct {
	events atomic.Int64 // that reached the client
	mu     sync.Mutex
	calls  map[string]int // by method
	losing bool
	broken func() bool    // decides for each call whether its connection breaks
	late   bool           // transactions are given up before they are sent,
	held   []func() error // and sent by deliver
	before func()         // runs once, before the next answer reaches the client
}

// wired makes a client whose calls go over a wire.
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
	if first := w.takeBefore(method); first != nil {
		first()
	}
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

// counted counts the events that reach a client.
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

// breaks breaks the connection of every second call before its answer.
func (w *wire) breaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	w.broken = func() bool {
		n++
		return n%2 == 1
	}
}

// lose makes the replies to all transactions get lost from now on, or no
// longer.
func (w *wire) lose(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = yes
}

// delay gives up transactions from now on, or no longer. deliver sends them.
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

// beforeAnswer has f run while the answer to the next transaction is under way.
func (w *wire) beforeAnswer(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = f
}

func (w *wire) takeBefore(method string) (f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasSuffix(method, "/Txn") {
		f, w.before = w.before, nil
	}
	return f
}

// deliver sends the transactions that were given up.
func (w *wire) deliver(tb testing.TB) {
	tb.Helper()
	for _, send := range w.held {
		if err := send(); err != nil {
			tb.Fatal(err)
		}
	}
}

// inTime counts the calls that f makes. fast means that none can have been
// given up and repeated.
func (w *wire) inTime(f func()) (calls map[string]int, fast bool) {
	began := time.Now()
	calls = w.during(f)
	return calls, time.Since(began) < requestTimeout
}

// during counts the calls that f makes.
func (w *wire) during(f func()) map[string]int {
	w.mu.Lock()
	w.calls = map[string]int{}
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.calls) // background work is still counted
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// must sends requests that have to succeed, and repeats those without an
// answer. On a busy machine a call may time out.
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

// open makes a store that is closed with the test.
func open(tb testing.TB, client *clientv3.Client, prefix string) *Store {
	tb.Helper()
	s := New(client, &Options{Prefix: prefix, SweepEvery: -1})
	s.timeout = testenv.Patience // an answer may be late on a busy machine
	tb.Cleanup(func() { s.Close() })
	return s
}
