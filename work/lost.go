package work

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
)

// ErrLost is matched by every [*LostError].
var ErrLost = errors.New("item lost")

// Loss says why the context of a handler ended before its work was done.
type Loss string

// The reasons for which a handler must stop.
const (
	Superseded Loss = "superseded" // the ledger says that it has a newer owner, was cancelled, or is no longer there
	Expired    Loss = "expired"    // no heartbeat was confirmed in time
	Stalled    Loss = "stalled"    // no progress was reported for StallAfter
	Drained    Loss = "drained"    // the worker is shutting down, and the time to finish is over
)

// LostError is the cause with which a handler's context ends. It matches ErrLost, and what Err matches.
type LostError struct {
	Item  ID
	Token fence.Token
	Loss  Loss
	// Err is the ledger's last answer, if there was one.
	Err error
}

func (e *LostError) Error() string {
	why := map[Loss]string{
		Superseded: "it is no longer this worker's; stop, nothing of this attempt will count",
		Expired:    "no heartbeat was confirmed in time; stop, another may begin soon",
		Stalled:    "no progress was reported for too long",
		Drained:    "the worker is shutting down; the item is given back",
	}[e.Loss]
	s := fmt.Sprintf("item %s lost (token %d): %s", e.Item, e.Token, why)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every LostError match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap gives the ledger's last answer.
func (e *LostError) Unwrap() error { return e.Err }
