package sqlite

import (
	"context"
	"net/url"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
)

var (
	_ guard.Host = (*Store)(nil)
	_ guard.Host = (*Ledger)(nil)
)

// Guard opens the guard of a fence row in the ledger's own file, or of a file,
// as [Store.Guard] does.
func (l *Ledger) Guard(ctx context.Context, target string) (guard.Guard, error) {
	return l.store.Guard(ctx, target)
}

// Guard opens the guard of a fence row in the store's own file. If only this
// user can write to the store, Guard also opens the guard of any other file,
// because only this user can have named it. See [guard.Host].
func (s *Store) Guard(ctx context.Context, target string) (guard.Guard, error) {
	b, err := s.database(ctx)
	if err != nil {
		return nil, err
	}
	if guard.IsFile(target) && fsys.Private(b.file) {
		return guard.Open(ctx, target)
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "sqlite" || u.Fragment == "" {
		return nil, guard.ErrElsewhere
	}
	if path, err := cleanPath(pathOf(u)); err != nil || path != b.path && path != b.file {
		return nil, guard.ErrElsewhere
	}
	return NewGuard(b.db, FenceRow{Name: u.Fragment}, &GuardOptions{LockWait: s.options.LockWait, Target: target})
}
