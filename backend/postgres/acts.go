package postgres

import (
	"context"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// Acts tells of operators' acts, over the connection that also wakes waiters.
// An act and its notification are committed together. Where the server cannot
// notify, because a transaction pooler is in between, the error matches
// errors.ErrUnsupported.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	on, err := s.listening(ctx)
	if err != nil {
		return nil, err
	}
	l := s.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != on || l.closed {
		return nil, store.Unknown(errLineLost)
	}
	return l.acts.Listen(ctx), nil
}

// acted tells of an operator's act. Every role of the database can send such a
// notification, so only keys are passed on.
func (l *listener) acted(key string) {
	if fence.CheckKey(key) == nil {
		l.acts.Tell(key)
	}
}
