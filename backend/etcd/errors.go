package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// ErrClosed is the reason why a closed store answers nothing.
var ErrClosed = errors.New("the store is closed; open it again")

// advice says what to do about errors of etcd.
var advice = []struct {
	err     error
	meaning string
}{
	{rpctypes.ErrNoLeader, "the cluster has no leader: most of its members must be up and reach each other; ask again"},
	{rpctypes.ErrNotLeader, "the leader changed; ask again"},
	{rpctypes.ErrLeaderChanged, "the leader changed; ask again"},
	{rpctypes.ErrTimeout, "the members did not agree in time; see whether their disks and network keep up"},
	{rpctypes.ErrTimeoutDueToLeaderFail, "the leader was lost while it was under way; ask again"},
	{rpctypes.ErrTimeoutDueToConnectionLost, "the members lost each other; ask again"},
	{rpctypes.ErrTooManyRequests, "etcd is overloaded; ask again more slowly"},
	{rpctypes.ErrNoSpace, "etcd's quota is used up and it accepts no changes: " +
		"compact and defragment it, or raise --quota-backend-bytes, then disarm the alarm"},
	{rpctypes.ErrCorrupt, "a member's data is corrupt: see `etcdctl alarm list`"},
	{rpctypes.ErrPermissionDenied, "this user needs a role that may read and write keys with the store's prefix"},
	{rpctypes.ErrUserEmpty, "etcd asks for a user: " +
		"put USER and PASSWORD before the host in the URL, with : between them and @ behind"},
	{rpctypes.ErrAuthFailed, "the user or the password is wrong"},
	{rpctypes.ErrInvalidAuthToken, "the login has lapsed; ask again"},
	{rpctypes.ErrAuthOldRevision, "users or roles have just been changed; ask again"},
	{rpctypes.ErrRequestTooLarge, "raise --max-request-bytes, or let the client send smaller batches"},
	{rpctypes.ErrTooManyOps, "raise --max-txn-ops to 128, its default"},
	{rpctypes.ErrLeaseNotFound, "the etcd lease has expired or was revoked; ask again"},
	{rpctypes.ErrCompacted, "etcd has forgotten that revision; ask again"},
}

// explain adds advice to an error of etcd. errors.Is finds etcd's error in the
// result, and the reason why ctx has ended.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	known := rpctypes.Error(err)
	switch why := wait.Ended(ctx); {
	case why == nil:
	case errors.Is(why, known): // etcd's error only repeats that ctx has ended
		return fmt.Errorf("etcd: no answer: %w; see whether its members are up and reach each other", why)
	case code(known) == codes.Unavailable:
		return fmt.Errorf("etcd: %w (%w)", why, unreached{known})
	default:
		return fmt.Errorf("etcd: %w (%w)", why, known)
	}
	for _, a := range advice {
		if errors.Is(known, a.err) {
			return fmt.Errorf("%w; %s", known, a.meaning)
		}
	}
	switch code(err) {
	case codes.Unavailable:
		why := unreached{known}
		return fmt.Errorf("etcd: no member can be reached: %w; %s", why, remedy(why.Error()))
	case codes.Unimplemented:
		return fmt.Errorf("etcd: what answers there is no etcd: %w; check host and port", known)
	case codes.Unauthenticated:
		return fmt.Errorf("etcd: %w; give a user and a password in the URL", known)
	}
	if errors.Is(err, context.DeadlineExceeded) || code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("etcd: no answer in time: %w; see whether its members are up and reach each other", known)
	}
	return fmt.Errorf("etcd: %w", known)
}

// faults are the errors that stay until somebody acts. etcd has changed
// nothing. ErrNoSpace is not one of them: etcd also carries out the request
// that uses up its quota, and then answers with this error.
var faults = []error{
	rpctypes.ErrCorrupt, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed,
}

// explainStore is explain for a call that was made once, or that may be
// repeated. It tells faults from unknown outcomes.
func explainStore(ctx context.Context, err error) error {
	cause := explain(ctx, err)
	if err == nil || ctx.Err() != nil {
		return cause
	}
	for _, fault := range faults {
		if errors.Is(rpctypes.Error(err), fault) {
			return store.Fault(cause)
		}
	}
	if code(err) == codes.Unavailable && undialled(status.Convert(err).Message()) {
		return store.Fault(cause)
	}
	return cause
}

// undialled reports whether a message of gRPC says that no connection could be
// made: the ports are closed, the hosts are not known, or their certificates
// are not trusted. A call that was sent does not fail with such words.
func undialled(message string) bool {
	if strings.Contains(message, "Error while dialing") {
		return strings.Contains(message, "connection refused") || strings.Contains(message, "no such host")
	}
	return strings.Contains(message, "authentication handshake failed") &&
		strings.Contains(message, "failed to verify certificate")
}

func leaseGone(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) }
