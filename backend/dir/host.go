package dir

import (
	"context"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
)

var _ guard.Host = (*Store)(nil)

// Guard opens the guard of any file, if only this user can write to the store.
// Then no other user can have named the file. See [guard.Host].
func (s *Store) Guard(ctx context.Context, target string) (guard.Guard, error) {
	if !guard.IsFile(target) {
		return nil, guard.ErrElsewhere
	}
	if !fsys.Private(s.reg.root) || !fsys.Private(s.reg.keys) {
		return nil, guard.ErrElsewhere
	}
	return guard.Open(ctx, target)
}
