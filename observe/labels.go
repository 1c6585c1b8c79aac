package observe

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
)

// spaces bounds the number of namespaces that have labels of their own.
type spaces struct {
	most int
	mu   sync.RWMutex
	seen map[string]bool
}

// The labels for keys without a label of their own.
const (
	noSpace    = "none"  // keys of one segment
	otherSpace = "other" // namespaces beyond the bound
)

func (s *spaces) of(key string) string { return s.named(fence.Namespace(key)) }

// known returns the label of a key's namespace if it has one already, and
// "other" if not. It gives no new labels.
func (s *spaces) known(key string) string {
	space := fence.Namespace(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if space == "" {
		return noSpace
	}
	if !s.seen[space] {
		return otherSpace
	}
	return space
}

// named returns the label of a namespace, and gives it one if any are left.
func (s *spaces) named(space string) string {
	if space == "" {
		return noSpace
	}
	s.mu.RLock()
	known, full := s.seen[space], len(s.seen) >= s.most
	s.mu.RUnlock()
	switch {
	case known:
		return space
	case full:
		return otherSpace
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.seen[space] && len(s.seen) >= s.most {
		return otherSpace
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[space] = true
	return space
}

// kindOf returns the kind of a target: the scheme of its URL, or "file".
func kindOf(target string) string {
	if scheme, _, ok := strings.Cut(target, "://"); ok && scheme != "" && len(scheme) < 32 &&
		!strings.ContainsAny(scheme, `/\. `) { // a path may have :// in it
		return scheme
	}
	return "file"
}

// The outcomes of a guarded write or of a raise, named as in --json.
const (
	admitted = "admitted"
	failed   = "error"
)

// outcomeOf returns the label for a guard's answer.
func outcomeOf(err error) string {
	for _, refusal := range []struct {
		err  error
		name string
	}{
		{fence.ErrStale, "stale"},
		{fence.ErrCollision, "collision"},
		{fence.ErrWrongKey, "wrong_key"},
		{fence.ErrRepeated, "repeated"},
		{tenure.ErrNotOwned, "not_owned"},
		{fence.ErrInvalid, "invalid"},
		{guard.ErrBusy, "busy"},
	} {
		if errors.Is(err, refusal.err) {
			return refusal.name
		}
	}
	if err == nil {
		return admitted
	}
	return failed
}

// The reasons why a renewal had no answer.
const (
	timeout     = "timeout"
	unreachable = "unreachable"
)

// failure returns the reason why a renewal had no answer.
func failure(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return timeout
	}
	return unreachable
}
