package work

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
)

// ErrLost is matched by every [*LostError].
var ErrLost = errors.New("item lost")

// Loss says why a handler's context ended before the handler returned.
type Loss string

// The reasons for which a handler must stop.
const (
	// Superseded means that the item has a newer owner, was cancelled, or no
	// longer exists.
	Superseded Loss = "superseded"
	// Expired means that no heartbeat was confirmed in time.
	Expired Loss = "expired"
	// Stalled means that no progress was reported for StallAfter.
	Stalled Loss = "stalled"
	// Drained means that the worker is shutting down, and the time to finish is
	// over.
	Drained Loss = "drained"
)

// LostError is the cause with which a handler's context ends. It matches
// ErrLost and everything that Err matches.
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

// Unwrap returns the ledger's last answer.
func (e *LostError) Unwrap() error { return e.Err }
