package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
)

// requestTimeout bounds most calls of etcd. Calls of guards and parts of a
// listing have twice that. If a member hangs, the next call goes to another
// one.
const requestTimeout = 2 * time.Second

// commit makes a transaction. A transaction that only reads is repeated through
// another member if the first one fails.
func commit(
	ctx context.Context, client *clientv3.Client, each time.Duration,
	compares []clientv3.Cmp, then, otherwise []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	try := once[*clientv3.TxnResponse]
	if onlyReads(then) && onlyReads(otherwise) {
		try = repeated
	}
	return try(ctx, each, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return client.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
	})
}

func onlyReads(ops []clientv3.Op) bool {
	for _, op := range ops {
		if op.IsTxn() {
			_, then, otherwise := op.Txn()
			if !onlyReads(then) || !onlyReads(otherwise) {
				return false
			}
		} else if !op.IsGet() {
			return false
		}
	}
	return true
}

// once makes a call that may change something. Without an answer its outcome is
// unknown. each bounds the call.
func once[T any](ctx context.Context, each time.Duration, call func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	bounded, met := withDialFailure(bounded)
	got, err := call(bounded)
	if err = met.reason(err); code(err) == codes.Unavailable && met.sent.Load() {
		return got, explain(ctx, err) // an earlier or later try may have taken effect
	}
	return got, explainStore(ctx, err)
}

// repeated makes a call that may be repeated, because it only reads or says the
// same again. While a member dies or a leader is elected, it repeats the call
// through another member. each bounds every try. After three tries and twice
// that time it returns the last error.
func repeated[T any](ctx context.Context, each time.Duration, call func(context.Context) (T, error)) (T, error) {
	const most = 100 * time.Millisecond
	began, wait := time.Now(), most/16
	for tries := 1; ; tries++ {
		bounded, cancel := context.WithTimeout(ctx, each)
		bounded, met := withDialFailure(bounded)
		got, err := call(bounded)
		err = met.reason(err)
		cause := explainStore(ctx, err)
		passing := transient(err) && !store.IsFault(cause)
		cancel()
		if !passing || tries >= 3 && time.Since(began) > 2*each || clock.Sleep(ctx, wait/2+rand.N(wait)) != nil {
			return got, cause
		}
		wait = min(2*wait, most)
	}
}

// transient reports whether another member may answer, or the same one a little
// later.
func transient(err error) bool {
	if err == nil {
		return false
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// code returns gRPC's code of an error, also if the client library has wrapped
// it in an error of its own.
func code(err error) codes.Code {
	var named interface{ Code() codes.Code }
	if errors.As(err, &named) {
		return named.Code()
	}
	return status.Code(err)
}
