package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
)

// The chain is the guard of a file on a network mount, where no lock can be
// relied on. It lies beside the artifact, in the folder NAME.fence.d:
//
//	00…17.json           version 17: mark, content, and what it follows
//	content-00…17-NONCE  the content of version 17, never changed
//	new-00…18-NONCE      version 18, if its maker is the first
//	stage-NONCE          content that is still being read
//	sidecar              the mark of the time before the chain
//
// A change is committed by one link(2): a finished, synced file gets the name
// of the next version, and of many that try only one gets it. The version holds
// both the mark and the name of the content, so both change in one step.
//
// # Caches
//
// A listing may be old, and so may be the knowledge that a name is free. So a
// listing is only where the search for the newest version begins, and link(2)
// decides. A version's file is opened anew each time: then the server answers.
// If the answer to a link is lost, the nonce in the version that stands there
// says whose it is.
//
// # Late links
//
// Old versions are pruned, so a name that was taken becomes free again. A
// process that stood still may link its version to such a name long after. It
// must not count. This is how it is told apart:
//
//   - Each version has the nonce of the version it follows.
//   - Versions are pruned upwards, and far behind the newest. The file that a
//     version was linked from goes first, so no late repetition of the same
//     link can bring it back.
//   - A version counts only if the version before it is there, with that nonce.
//
// If the version before is still there, it has not been pruned, so the one
// after it has not been pruned either. Then the name was free because nobody
// had used it. Otherwise the version is a stray: no call follows it, and its
// maker is told that the outcome is unknown. Version 1 comes into being with
// the folder.
//
// # Content
//
// A content's name has the number of the version it is meant for. Once that
// number is taken by another version, the content can no longer be committed
// under this name: its writer must rename it first. So any call may remove a
// content of a passed number that the newest version does not name. No
// committed content is lost by that, whatever the clocks say.
type chain struct {
	*visit
	home string
}

// chainSuffix makes the name of a chain's folder from the sidecar's.
const chainSuffix = ".d"

// chainMemory is what a File remembers of its chain, to search less. Nothing
// is decided by it.
type chainMemory struct {
	mu    sync.Mutex
	known uint64      // a version that was the newest once
	plain plainMemory // the copy that was compared last
}

// chain finds the artifact's chain; nil if there is none.
func (v *visit) chain() (*chain, error) {
	c := &chain{v, v.sidecar + chainSuffix}
	info, err := v.fs.Lstat(c.home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, v.explain(err)
	case !info.IsDir():
		return nil, c.damaged(c.home, "it is not a folder")
	}
	folder, err := v.fs.Lstat(v.folder)
	if err != nil {
		return nil, v.explain(err)
	}
	if planted(info, folder) {
		if artifact, err := v.fs.Lstat(v.path); err != nil || guardUser(info) != guardUser(artifact) {
			return nil, c.damaged(c.home, "user %d has made it, in a directory where every user can make files",
				guardUser(info))
		}
	}
	return c, nil
}

// ChainError says that a chain of versions cannot be trusted: the mark is
// unknown, so nothing is admitted until it is repaired.
type ChainError struct {
	Path, Reason string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%s is damaged (%s), and with it the memory of whose writes count; restore it, or once "+
		"no old writer is alive move it away and raise the fence with the token of the present owner: "+
		"croft guard raise TARGET", e.Path, e.Reason)
}

func (c *chain) damaged(path, format string, args ...any) error {
	return &ChainError{Path: path, Reason: fmt.Sprintf(format, args...)}
}

// Bounds of looking for the newest version while others change it.
const (
	chainTries = 50
	chainPause = 2 * time.Millisecond
)

// errPassed says that a version has been pruned meanwhile, or is a stray.
var errPassed = errors.New("it is not part of the chain")

// look finds the newest version. Its number is 0 if the folder is gone.
func (c *chain) look(ctx context.Context) (chainVersion, error) {
	var failed error
	for try := range chainTries {
		if try > 0 {
			c.remember(0)
			c.stir()
			_ = clock.Sleep(ctx, chainPause)
		}
		if err := ctx.Err(); err != nil {
			return chainVersion{}, fmt.Errorf("guard %s: %w", c.path, err)
		}
		newest, err := c.newest()
		if err == nil {
			c.remember(newest.Number)
			return newest, nil
		}
		if !errors.Is(err, errPassed) {
			return chainVersion{}, err
		}
		failed = err
	}
	return chainVersion{}, c.damaged(c.home, "%v", failed)
}

// newest looks once. It begins at the highest number that it knows of, and goes
// on from there by opening names that no listing needs to have.
func (c *chain) newest() (chainVersion, error) {
	names, err := c.fs.Names(c.home)
	if errors.Is(err, fs.ErrNotExist) {
		return chainVersion{}, nil
	}
	if err != nil {
		return chainVersion{}, c.explain(err)
	}
	at := max(highest(names), c.remembered(), 1)
	v, err := c.read(at)
	for err == nil {
		var next chainVersion
		if next, err = c.read(v.Number + 1); err == nil {
			v = next
		}
	}
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return v, err
	case v.Number == 0:
		return v, fmt.Errorf("version %d is not there: %w", at, errPassed)
	}
	return v, c.follows(v)
}

func highest(names []string) (most uint64) {
	for _, name := range names {
		if n, ok := parseVersionName(name); ok {
			most = max(most, n)
		}
	}
	return most
}

// follows returns nil if v names the version that is there before it. Otherwise
// the error matches errPassed.
func (c *chain) follows(v chainVersion) error {
	if v.Number == 1 || c.omit.confirm {
		return nil
	}
	before, err := c.read(v.Number - 1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("version %d has lost the one before it: %w", v.Number, errPassed)
	case err != nil:
		return err
	case before.Nonce != v.Follows:
		return fmt.Errorf("version %d follows another version than %d: %w", v.Number, before.Number, errPassed)
	}
	return nil
}

// stir makes and removes a file: a client of a network file system then knows
// that its listing of the folder is old.
func (c *chain) stir() {
	path := c.stageName(newNonce())
	if file, err := c.makeFile(path, nil); err == nil {
		_ = file.Close()
	}
	_ = c.fs.Remove(path)
}

func (c *chain) remember(number uint64) {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.memory.known = number
}

func (c *chain) remembered() uint64 {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return c.memory.known
}

// state is what the newest version says. Version 1 says nothing: what counts
// then is the sidecar from before, whether it has been taken over or not.
func (c *chain) state(ctx context.Context) (chainVersion, error) {
	newest, err := c.look(ctx)
	if err != nil || newest.Number > 1 {
		return newest, err
	}
	s, err := c.retired()
	if errors.Is(err, fs.ErrNotExist) {
		s, err = c.visit.look(ctx)
	}
	if err == nil && s.mark.IsZero() { // it may have been moved between the two looks
		if s, err = c.retired(); errors.Is(err, fs.ErrNotExist) {
			s, err = slotState{}, nil
		}
	}
	return newest.with(s), err
}
