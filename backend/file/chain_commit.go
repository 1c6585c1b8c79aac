package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/store"
)

// commit adds one version to the chain. decide changes a copy of the newest
// version into the next, or refuses. It is asked again if another version came
// first. The answer is the version that then is the newest, as far as is known.
func (c *chain) commit(
	ctx context.Context, content *chainFile, decide func(next *chainVersion) error,
) (chainVersion, error) {
	w := c.startWaiting(ctx)
	if err := w.lockMutex(); err != nil {
		return chainVersion{}, err
	}
	defer func() { <-c.mutex }()
	for {
		newest, err := c.settled(ctx)
		if err != nil {
			return newest, err
		}
		next := newest.successor()
		if err := decide(&next); err != nil {
			return newest, err
		}
		if content != nil {
			if err := content.aim(&next); err != nil {
				return newest, err
			}
		}
		next.Pruned = c.prune(newest)
		made, err := c.add(ctx, next)
		switch {
		case err != nil:
			return newest, err
		case made:
			return next, nil
		case !time.Now().Before(w.deadline):
			return newest, fmt.Errorf("%w: others have changed %s before this call each time it tried; "+
				"nothing was changed: try again", guard.ErrBusy, c.path)
		}
		_ = clock.Sleep(ctx, rand.N(chainPause))
	}
}

// add links a version into the chain. It reports false if another version has
// the number. An error that matches store.ErrUnknown leaves open whether the
// version was made, now or later: then nothing that it needs is removed.
func (c *chain) add(ctx context.Context, next chainVersion) (bool, error) {
	data, err := next.encode()
	if err != nil {
		return false, c.failed("writing a version", err)
	}
	temp := c.part(newKind, next.Number, next.Nonce)
	file, err := c.makeFile(temp, data)
	if err != nil {
		return false, err
	}
	_ = file.Close() // its content is synced
	// Also what others have linked, and were killed before they could sync it.
	if err = c.sync(c.home); err == nil {
		err = c.checkFolder()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.fs.Remove(temp)
		return false, fmt.Errorf("guard %s: %w", c.path, err)
	}
	linked := c.fs.Link(temp, c.versionPath(next.Number))
	made, err := c.made(ctx, next, linked)
	if err != nil {
		return false, err
	}
	if made {
		if err := c.sync(c.home); err != nil {
			err = fmt.Errorf("guard %s: the change counts, but may not survive a power cut: %w", c.path, err)
			return false, store.Unknown(err)
		}
	}
	_ = c.fs.Remove(temp)
	return made, nil
}

// made finds out whether a link has made a version. The answer to a link says
// little: over a network it may be lost, or be that of a repetition.
func (c *chain) made(ctx context.Context, next chainVersion, linked error) (bool, error) {
	unknown := func(err error) (bool, error) {
		return false, store.Unknown(fmt.Errorf(
			"guard %s: %w; whether the change counts is not known: look at the mark", c.path, err))
	}
	there, err := c.read(next.Number)
	if c.omit.nonce && linked != nil {
		return false, nil
	}
	switch {
	case err == nil && there.Nonce == next.Nonce:
		if err := c.follows(there); err != nil { // a late link to a pruned number
			return unknown(err)
		}
		return true, nil
	case err == nil && there.Follows == next.Follows:
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return unknown(err)
	}
	// The number is free again, or a stray has it: the chain may have gone on.
	newest, err := c.look(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		return unknown(err)
	case linked == nil:
		return unknown(fmt.Errorf("version %d was made and is gone", next.Number))
	case newest.Number >= next.Number && there.Nonce == "":
		return unknown(linked)
	case errors.Is(linked, fs.ErrExist), errors.Is(linked, fs.ErrNotExist):
		return false, nil // decided by the server at once: it will not happen later
	}
	return unknown(linked)
}

// sync makes the names in a folder durable, as far as its file system can.
func (v *visit) sync(folder string) error {
	err := v.fs.SyncDir(folder)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // a network file system that syncs by itself, or not at all
	}
	return err
}

// change adds a version with the same content.
func (c *chain) change(ctx context.Context, to func(slotState) (slotState, error)) (chainVersion, error) {
	if err := ctx.Err(); err != nil {
		return chainVersion{}, fmt.Errorf("guard %s: %w", c.path, err)
	}
	next, err := c.commit(ctx, nil, func(next *chainVersion) error {
		s, err := to(next.slot())
		*next = next.with(s)
		return err
	})
	if err == nil || !errors.Is(err, store.ErrUnknown) {
		c.repair(ctx)
	}
	return next, err
}

// slot is a version as a sidecar would say it.
func (v chainVersion) slot() slotState {
	s := slotState{mark: v.Mark, writes: v.Writes, changed: v.Changed}
	if v.Rekeyed != nil {
		s.rekeyed = *v.Rekeyed
	}
	return s
}

// The chain keeps this many versions, and prunes this many at once.
const (
	chainKeeps = 64
	chainPrune = 16
)

// prune removes versions that are far behind the newest, upwards, and returns
// the number up to which it got. A version counts only while the one before it
// is there, so the order matters: see chain.
func (c *chain) prune(newest chainVersion) uint64 {
	done := newest.Pruned
	if newest.Number < done+chainKeeps+chainPrune {
		return done
	}
	for number := done + 1; number+chainKeeps <= newest.Number; number++ {
		old, err := c.read(number)
		if err == nil {
			// Its maker may still wait for an answer, and the link be repeated.
			err = c.fs.Remove(c.part(newKind, number, old.Nonce))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = c.fs.Remove(c.versionPath(number))
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		done = number
	}
	return done
}

// sweep removes what dead writes have left in the chain's folder, when it is a
// day old: a writer that was overtaken needs its content for the next try.
func (c *chain) sweep(ctx context.Context) (removed int, err error) {
	newest, err := c.look(ctx)
	if err != nil || newest.Number == 0 {
		return 0, err
	}
	names, err := c.fs.Names(c.home)
	if err != nil {
		return 0, c.explain(err)
	}
	for _, name := range names {
		if !newest.passed(name) {
			continue
		}
		path := filepath.Join(c.home, name)
		info, err := c.fs.Lstat(path)
		if err == nil && time.Since(info.ModTime()) > chainLeftAge && c.fs.Remove(path) == nil {
			removed++
		}
	}
	return removed, nil
}
