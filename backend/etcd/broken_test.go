package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store/storetest"
)

// flaws are parts that could be missing in the store's transactions. Each names
// the group of the suite that must notice it. A condition or operation is left
// out if compare or operation returns false.
var flaws = []struct {
	name, group string
	compare     func(of string, c *pb.Compare) bool
	operation   func(of string, op *pb.RequestOp) bool
	deaf        bool
}{
	{name: "a record that has changed is written over", group: "contention", compare: func(string, *pb.Compare) bool { return false }},
	{name: "records are not read", group: "history", operation: func(of string, op *pb.RequestOp) bool { return of != "r" || op.GetRequestRange() == nil }},
	{name: "nobody is told of changes", group: "watch", deaf: true},
	{name: "there are no heartbeats", group: "transitions", operation: func(of string, op *pb.RequestOp) bool { return of != "h" || op.GetRequestPut() == nil }},
	{name: "records are not written", group: "tokens", operation: func(of string, op *pb.RequestOp) bool { return of != "r" || op.GetRequestPut() == nil }},
	{name: "heartbeats are not read", group: "handles", operation: func(of string, op *pb.RequestOp) bool { return of != "h" || op.GetRequestRange() == nil }},
	{name: "nothing is dropped", group: "retention", operation: func(of string, op *pb.RequestOp) bool { return of != "r" || op.GetRequestDeleteRange() == nil }},
}

// TestStoresBrokenOnPurposeAreCaught by the suite that the store passes.
func TestStoresBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	testenv.Etcd(t) // skips the test here where no server may run: no variant could fail
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			failures := storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				c := testenv.Etcd(tb)
				h := harness(tb, c, storetest.NewClock(), func(config *clientv3.Config) {
					config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(
						func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
							if txn, is := req.(*pb.TxnRequest); is {
								spoil(c.Prefix(), txn, f.compare, f.operation)
							}
							return call(ctx, method, req, reply, conn, opts...)
						}))
					if f.deaf {
						config.DialOptions = append(config.DialOptions, grpc.WithChainStreamInterceptor(deafen))
					}
				})
				h.Patience = 200 * time.Millisecond
				return h
			}, f.group)
			if len(failures) == 0 {
				t.Error("the suite has not noticed")
			}
			for check, said := range failures {
				t.Logf("caught by %q: %s", check, said[0])
			}
		})
	}
}

// deafen keeps events from a client.
func deafen(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, opts...)
	return deaf{s}, err
}

type deaf struct{ grpc.ClientStream }

func (s deaf) RecvMsg(msg any) error {
	err := s.ClientStream.RecvMsg(msg)
	if resp, is := msg.(*pb.WatchResponse); is {
		resp.Events = nil
	}
	return err
}

// spoil leaves parts out of a transaction. It replaces an operation by a read
// of nothing, so that the other answers keep their index.
func spoil(prefix string, txn *pb.TxnRequest, compare func(string, *pb.Compare) bool, operation func(string, *pb.RequestOp) bool) {
	kind := func(key []byte) string {
		rest, _ := strings.CutPrefix(string(key), prefix)
		of, _, _ := strings.Cut(rest, "/")
		return of
	}
	if compare != nil {
		var kept []*pb.Compare
		for _, c := range txn.Compare {
			if compare(kind(c.Key), c) {
				kept = append(kept, c)
			}
		}
		txn.Compare = kept
	}
	for _, ops := range [][]*pb.RequestOp{txn.Success, txn.Failure} {
		for i, op := range ops {
			var key []byte
			switch {
			case op.GetRequestTxn() != nil:
				spoil(prefix, op.GetRequestTxn(), compare, operation)
				continue
			case op.GetRequestPut() != nil:
				key = op.GetRequestPut().Key
			case op.GetRequestDeleteRange() != nil:
				key = op.GetRequestDeleteRange().Key
			case op.GetRequestRange() != nil:
				key = op.GetRequestRange().Key
			}
			if operation != nil && !operation(kind(key), op) {
				ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("nothing")}}}
			}
		}
	}
}
