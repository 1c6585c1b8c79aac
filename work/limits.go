package work

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The size limits of a ledger. Larger input is refused with a [*LimitError]:
// store it elsewhere, and put its address into the item.
const (
	MaxPayload    = 1 << 20 // bytes of a payload, a result or a checkpoint
	MaxBody       = 1 << 18 // bytes of one effect
	MaxEffects    = 64      // effects of one completion
	MaxQueue      = 256     // bytes of a queue's name
	MaxEffectName = 128     // bytes of an effect's name or destination
	MaxUnique     = 256     // bytes of an idempotency key
	MaxPartition  = 256     // bytes of a partition's name
	MaxError      = 4096    // bytes of an attempt's error; shorten a longer one
	MaxPriority   = 1<<15 - 1
	MaxTries      = 1000 // the highest attempt limit
	MaxClaim      = 1000 // items of one claim, or effects of one Taking
	MaxDelay      = 366 * 24 * time.Hour
)

// The defaults.
const (
	DefaultTries       = 10               // attempts before an item is dead
	DefaultTTL         = time.Minute      // TTL of a claim
	DefaultReservation = 10 * time.Minute // time that Reassign keeps an item for its owner
	BackoffLeast       = time.Second      // wait before the second attempt; it doubles with each
	BackoffMost        = time.Hour        // the longest wait
)

// LimitError refuses input that is too large. It matches fence.ErrInvalid:
// nothing was changed.
type LimitError struct {
	What       string // the thing that is too large
	Size, Most int    // its size, and the largest allowed
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("invalid %s: its size is %d, at most %d is allowed; keep it elsewhere and give its address",
		e.What, e.Size, e.Most)
}

// Is makes every LimitError match fence.ErrInvalid.
func (e *LimitError) Is(target error) bool { return target == fence.ErrInvalid }

func checkSize(what string, size, most int) error {
	if size > most {
		return &LimitError{What: what, Size: size, Most: most}
	}
	return nil
}

// checkName checks a text that listings show: one line of bounded length.
func checkName(what, text string, most int) error {
	if err := checkSize(what, len(text), most); err != nil {
		return err
	}
	switch {
	case !utf8.ValidString(text):
		return fmt.Errorf("%w %s %q: it is not valid UTF-8", fence.ErrInvalid, what, text)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		return fmt.Errorf("%w %s %q: it has a control character", fence.ErrInvalid, what, text)
	}
	return nil
}

// checkQueue returns why a queue cannot have this name, or nil. Queue names
// follow the rules of lease keys, and have at most MaxQueue bytes.
func checkQueue(queue string) error {
	if err := checkSize("queue", len(queue), MaxQueue); err != nil {
		return err
	}
	if err := fence.CheckKey(queue); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

func checkError(text string) error {
	if err := checkSize("error text", len(text), MaxError); err != nil {
		return err
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w error text: it is not valid UTF-8, or has a NUL; replace those bytes", fence.ErrInvalid)
	}
	return nil
}

func checkDelay(what string, d time.Duration) error {
	if d < 0 || d > MaxDelay {
		return fmt.Errorf("%w %s %s: it must be between 0 and %s", fence.ErrInvalid, what, d, MaxDelay)
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < tenure.MinTTL || ttl > tenure.MaxTTL {
		return fmt.Errorf("%w TTL %s: it must be between %s and %s",
			fence.ErrInvalid, ttl, tenure.MinTTL, tenure.MaxTTL)
	}
	return nil
}

// Backoff returns how long an item waits after its n-th attempt has failed. It
// is BackoffLeast, doubled with each attempt up to BackoffMost. Up to a quarter
// is added, depending on the item, so that items which failed together do not
// come back together.
func Backoff(id ID, n int) time.Duration {
	d := BackoffMost
	if n < 1 {
		n = 1
	}
	if n <= 12 {
		d = min(BackoffLeast<<(n-1), BackoffMost)
	}
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	h = (h ^ uint32(n)) * 16777619
	return d + d/4*time.Duration(h>>8%1024)/1024
}
