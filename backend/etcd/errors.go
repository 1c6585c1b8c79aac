package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/croft-dev/croft/internal/wait"
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

func leaseGone(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) }
