package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// dialFailure is the last reason why a call has reached no member. etcd's
// client tries to connect until the time is up, and then reports only that. The
// single tries know more: a wrong name, a closed port, an untrusted
// certificate.
type dialFailure struct {
	last atomic.Pointer[error]
	sent atomic.Bool // a try may have reached a member
	end  context.CancelFunc
}

type (
	dialFailureKey struct{}
	failFastKey    struct{}
)

// withDialFailure returns a context in which noteDialFailure notes the reason.
// If calls fail fast, the reason also ends that context.
func withDialFailure(ctx context.Context) (context.Context, *dialFailure) {
	t := new(dialFailure)
	if ctx.Value(failFastKey{}) != nil {
		ctx, t.end = context.WithCancel(ctx)
	}
	return context.WithValue(ctx, dialFailureKey{}, t), t
}

// failFast returns a context in which calls end as soon as no member can be
// dialled. Otherwise they wait until their time is up, for a member to start
// again. The client of a store does that waiting, if there is a lease to keep.
func failFast(ctx context.Context) context.Context {
	return context.WithValue(ctx, failFastKey{}, true)
}

// noteDialFailure is a gRPC interceptor. It notes every try that has reached no
// member.
func noteDialFailure(
	ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	t, ok := ctx.Value(dialFailureKey{}).(*dialFailure)
	if ok && t.end != nil {
		options = append(options, grpc.WaitForReady(false))
	}
	err := invoke(ctx, method, request, reply, conn, options...)
	if !ok || err == nil {
		return err
	}
	noted := err
	switch code(err) {
	case codes.Unavailable:
	case codes.DeadlineExceeded:
		// If the message says so, the time was spent on connecting.
		_, why, connecting := strings.Cut(status.Convert(err).Message(), "latest balancer error: ")
		if !connecting {
			t.sent.Store(true)
			return err
		}
		noted = status.Error(codes.Unavailable, why)
	default:
		t.sent.Store(true)
		return err
	}
	t.last.Store(&noted)
	switch {
	case !undialled(status.Convert(noted).Message()):
		t.sent.Store(true)
	case t.end != nil:
		t.end() // etcd's client would try again
	}
	return err
}

// reason returns the last dial failure if err says only that the time is up.
// Otherwise it returns err.
func (t *dialFailure) reason(err error) error {
	late := errors.Is(err, context.DeadlineExceeded) || code(err) == codes.DeadlineExceeded ||
		errors.Is(err, context.Canceled) || code(err) == codes.Canceled
	if last := t.last.Load(); late && last != nil {
		return *last
	}
	return err
}

// unreached is the error of a call that has reached no member, in plain words.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// Error leaves out the layers that passed the error on.
func (u unreached) Error() string {
	why := status.Convert(u.error).Message()
	if _, inner, found := strings.Cut(why, `desc = "`); found {
		why = strings.TrimSuffix(inner, `"`)
	}
	for _, passed := range []string{"transport: ", "Error while dialing: "} {
		why = strings.TrimPrefix(why, passed)
	}
	return why
}

const (
	wrongName  = "write the hosts as their certificates name them, or that name with servername=NAME in the URL"
	withoutTLS = "they speak without TLS: write etcd:// and neither cert, key, cacert nor servername"
	hangsUp    = "what answers there hangs up: it may ask for a certificate that it trusts, " +
		"cert=FILE and key=FILE in the URL; its log says why"
	silent = "something listens there and says nothing: see whether the members hang, and whether it is etcd"
)

// remedies say what to do, by a part of the reason why no member was reached.
var remedies = []struct{ sign, remedy string }{
	{"certificate signed by unknown authority", "name whom to trust with cacert=FILE in the URL"},
	{"x509: certificate is valid for", wrongName},
	{"x509: cannot validate certificate", wrongName},
	{"first record does not look like a TLS handshake", withoutTLS},
	{"handshake failed: EOF", withoutTLS},
	{"remote error: tls:", "they ask for a certificate that they trust: give cert=FILE and key=FILE in the URL"},
	{"use of closed network connection", silent},
	{"broken pipe", hangsUp},
	{"connection reset", hangsUp},
	{"server preface", "what answers there speaks TLS, or is no etcd: write etcds://, or check host and port"},
}

func remedy(why string) string {
	for _, r := range remedies {
		if strings.Contains(why, r.sign) {
			return r.remedy
		}
	}
	return "check the addresses and that they are up"
}
