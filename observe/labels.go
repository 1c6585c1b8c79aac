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

// spaces bounds the namespaces that have labels of their own.
type spaces struct {
	most int
	mu   sync.RWMutex
	seen map[string]bool
}

// Labels that stand for what has no name of its own.
const (
	noSpace    = "none"  // keys of one segment
	otherSpace = "other" // namespaces beyond the bound
)

func (s *spaces) of(key string) string { return s.named(fence.Namespace(key)) }

// known is the label that a key's namespace has already. A namespace without
// one shares the label "other" and takes none of those that are left.
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

// named is the label of a namespace.
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

// kindOf is what sort of resource a target is: its URL's scheme, or a file.
func kindOf(target string) string {
	if scheme, _, ok := strings.Cut(target, "://"); ok && scheme != "" && len(scheme) < 32 && !strings.ContainsAny(scheme, `/\. `) { // a path may have :// in it
		return scheme
	}
	return "file"
}

// The outcomes of a guarded write or of a raise, named as in --json.
const (
	admitted = "admitted"
	failed   = "error"
)

// outcomeOf sorts what a guard said.
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

// Why a renewal had no answer.
const (
	timeout     = "timeout"
	unreachable = "unreachable"
)

// failure sorts why a renewal had no answer.
func failure(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return timeout
	}
	return unreachable
}
