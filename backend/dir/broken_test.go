package dir

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// The race tests must fail for a store that lacks one of the protocol's rules.
// Each test below breaks one rule.

// TestAStoreWithoutASecondListingIsCaught: blind never sees other versions
// after a link.
func TestAStoreWithoutASecondListingIsCaught(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		err := prunedPast(newFixture(t), &blind{FS: unsynced{fsys.OS{}}}, held)
		if err == nil {
			t.Errorf("a link that was a stray was taken for a grant, and the race with held=%t did not show it", held)
		}
		t.Logf("caught by %q: %v", "a writer that was overtaken and pruned past", err)
	}
}

// blind lists, right after a link, only the new version and the one before it.
type blind struct {
	fsys.FS
	mu     sync.Mutex
	linked string
}

func (b *blind) Link(from, to fsys.Path) error {
	err := b.FS.Link(from, to)
	if err == nil {
		b.mu.Lock()
		b.linked = to.String()
		b.mu.Unlock()
	}
	return err
}

func (b *blind) Names(path fsys.Path) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if filepath.Dir(b.linked) != path.String() {
		return b.FS.Names(path)
	}
	n, _ := parseVersionName(filepath.Base(b.linked))
	b.linked = ""
	return []string{versionName(n - 1), versionName(n)}, nil
}

// TestAStoreThatPrunesTheHeadIsCaught: reckless removes the newest version.
func TestAStoreThatPrunesTheHeadIsCaught(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	p.Store = p.another(&reckless{FS: unsynced{fsys.OS{}}})
	err := prunedPast(p, unsynced{fsys.OS{}}, true)
	if err == nil {
		t.Error("the newest version was pruned, and the race did not show it")
	}
	t.Logf("caught by %q: %v", "a writer that was overtaken and pruned past", err)
}

// reckless prunes one version too many.
type reckless struct{ fsys.FS }

func (r *reckless) Remove(path fsys.Path) error {
	if n, ok := parseVersionName(filepath.Base(path.String())); ok && strings.Contains(path.String(), "/keys/") {
		_ = r.FS.Remove(fsys.Anywhere(filepath.Join(filepath.Dir(path.String()), versionName(n+1))))
	}
	return r.FS.Remove(path)
}

// TestAStoreThatUsesNamesOfLivesAgainIsCaught: every life has the same name.
func TestAStoreThatUsesNamesOfLivesAgainIsCaught(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	same := func(time.Time) string { return "0000000000000000-0000000000000000" }
	again := func(fsy fsys.FS) *Store {
		st := open(t, p.root, &Options{now: p.clock.Now, fs: fsy, newLife: same})
		t.Cleanup(func() { st.Close() })
		return st
	}
	if err := reborn(p, again, func() { wipe(t, p.reg.keys) }); err == nil {
		t.Error("a link into the next life was taken for a grant, and the race did not show it")
	}
}
