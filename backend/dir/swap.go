package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// pileMost is how many versions may lie behind the newest before a swap that need not be durable clears them away.
const pileMost = 16

// placeTries is how often a birth finds something in its way and clears it before it reads the key anew.
const placeTries = 8

// Swap links a finished file as the version after old, and then looks whether that made it the newest.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, durable bool) error {
	data, err := encodeRecord(next)
	if err != nil {
		return err
	}
	if old == "" {
		return r.bear(ctx, next, data)
	}
	at, err := parsePosition(old)
	if err != nil {
		return err
	}
	temp, file, err := r.stage(data)
	if errors.Is(err, fs.ErrNotExist) { // wiped: then the key is gone as well
		if err := r.refurnish(); err != nil {
			return err
		}
		return cas.ErrConflict
	}
	if err != nil {
		return r.explain(err)
	}
	defer r.fs.Remove(temp)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	hash := hashOf(next.Key)
	folder := filepath.Join(r.home(hash), at.life)
	target := filepath.Join(folder, versionName(at.number+1))
	if err := r.link(temp, target); err != nil {
		return err
	}
	numbers, err := r.confirm(folder, at.number)
	if err != nil {
		return err
	}
	r.recall.keep(hash, position{at.life, at.number + 1}, next, file)
	if before := numbers[:len(numbers)-1]; durable || len(before) > pileMost {
		return r.settle(hash, at.life, before)
	}
	return nil
}

// link gives the staged file its name, or returns ErrConflict if another has it or the life is over.
func (r *register) link(temp, target string) error {
	err := r.fs.Link(temp, target)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		// Over NFS a request may be sent twice, and the answer be that of the second.
		if r.same(temp, target) {
			return nil
		}
		return cas.ErrConflict
	case errors.Is(err, fs.ErrNotExist):
		return cas.ErrConflict // the life was dropped or wiped, or the staged file taken for a leftover
	}
	return r.explain(err)
}

func (r *register) same(a, b string) bool {
	one, err := r.fs.Lstat(a)
	if err != nil {
		return false
	}
	other, err := r.fs.Lstat(b)
	return err == nil && fsys.SameFile(one, other)
}

// confirm looks whether the version after n, just made, is the newest and follows its predecessor. If not, it is a stray: its maker was stopped after
// reading n, and meanwhile the key went on and the number was pruned. A stray is below the newest version, so nobody reads it.
func (r *register) confirm(folder string, n uint64) ([]uint64, error) {
	numbers, err := r.numbers(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cas.ErrConflict
	}
	if err != nil {
		return nil, r.explain(err)
	}
	// Nobody but the maker of n+1 and those who follow it prune n.
	follows := slices.Contains(numbers, n)
	if follows && numbers[len(numbers)-1] == n+1 {
		return numbers, nil
	}
	if !follows {
		_ = r.fs.Remove(filepath.Join(folder, versionName(n+1)))
	}
	// Or else it did count, and another has already followed it: then the law finds that in the history.
	return nil, cas.ErrConflict
}

// settle makes a confirmed version durable and prunes those before it. Pruning comes after the sync: a power cut must not take the
// old version and the new one. It goes upwards and stops at the first failure, so that a version's absence means the absence of all before it.
//
// The first version is pruned by whoever has made sure that the life's own folder stays: its maker may have been killed before it did.
func (r *register) settle(hash, life string, before []uint64) error {
	folder := filepath.Join(r.home(hash), life)
	if err := r.syncDir(folder); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // dropped or wiped since: it did take effect
		}
		return r.explain(err)
	}
	if slices.Contains(before, 1) {
		if err := r.syncBirth(hash, life); err != nil {
			return err
		}
	}
	for _, n := range before {
		if err := r.fs.Remove(filepath.Join(folder, versionName(n))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil
}

// Settle makes durable a version that was found, not made: its maker may have been killed before it did.
func (r *register) Settle(_ context.Context, key string, v cas.Version) error {
	if v == "" {
		return nil
	}
	at, err := parsePosition(v)
	if err != nil {
		return err
	}
	hash := hashOf(key)
	err = r.syncDir(filepath.Join(r.home(hash), at.life))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // dropped or wiped since
	case err != nil:
		return r.explain(err)
	}
	return r.syncBirth(hash, at.life)
}

// bear begins a key's life: a folder with its first version is made ready in the staging folder and renamed into place, which fails if there is
// one already. It is durable when bear returns.
func (r *register) bear(ctx context.Context, next tenure.Record, data []byte) error {
	hash := hashOf(next.Key)
	life := r.newLife(next.Acquired)
	ready, file, err := r.stageLife(life, data)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.refurnish(); err == nil {
			ready, file, err = r.stageLife(life, data)
		}
	}
	if err != nil {
		return r.explain(err)
	}
	if ctx.Err() != nil {
		r.unstage(ready, life)
		return context.Cause(ctx)
	}
	if err := r.place(ctx, ready, hash, life); err != nil {
		r.unstage(ready, life)
		return err
	}
	r.recall.keep(hash, position{life, 1}, next, file)
	return r.syncBirth(hash, life)
}

// stageLife makes a key's folder in the staging folder. Everything is made before anything is synced: most file systems then sync all of it at once.
func (r *register) stageLife(life string, data []byte) (ready string, file fs.FileInfo, err error) {
	ready = r.temp("born")
	folder := filepath.Join(ready, life)
	err = r.mkdir(ready)
	if err == nil {
		err = r.mkdir(folder)
	}
	if err == nil {
		file, err = r.write(filepath.Join(folder, versionName(1)), data)
	}
	if err == nil {
		err = r.syncDir(folder)
	}
	if err == nil {
		err = r.syncDir(ready)
	}
	if err != nil {
		r.unstage(ready, life)
		return "", nil, err
	}
	return ready, file, nil
}

func (r *register) unstage(ready, life string) {
	_ = r.fs.Remove(filepath.Join(ready, life, versionName(1)))
	_ = r.fs.Remove(filepath.Join(ready, life))
	_ = r.fs.Remove(ready)
}

// place renames a folder that is ready to where the key's folder belongs.
func (r *register) place(ctx context.Context, ready, hash, life string) error {
	home := r.home(hash)
	for range placeTries {
		err := r.fs.Rename(ready, home)
		if err == nil {
			return nil
		}
		taken := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist)
		if !taken && !errors.Is(err, fs.ErrNotExist) {
			return r.explain(err)
		}
		h, err := r.look(ctx, hash, emptyTries)
		switch {
		case err != nil:
			return err
		case h.at.life == life:
			return nil // over NFS: the answer to a rename that was sent twice
		case h.dropped:
			if err := r.bury(hash, h.at.life); err != nil {
				return err
			}
			r.emptyGraves()
		case h.at.life != "":
			return cas.ErrConflict
		case taken:
			if err := r.clear(hash); err != nil {
				return err
			}
		default: // no shard, or a wipe took the staged folder
			if _, err := r.fs.Lstat(ready); errors.Is(err, fs.ErrNotExist) {
				return cas.ErrConflict
			}
			if err := r.makeShard(hash); err != nil {
				return err
			}
		}
	}
	return cas.ErrConflict
}

// clear removes empty folders that are in a birth's way: a life's that has no version left, because somebody moved a damaged one away, or the key's own after a
// drop that was not finished. rmdir removes nothing that is in use.
func (r *register) clear(hash string) error {
	inTheWay := r.home(hash)
	life, err := r.life(hash)
	switch {
	case errors.Is(err, errEmpty):
		names, err := r.fs.Names(inTheWay)
		if err == nil && len(names) > 0 {
			return fmt.Errorf("store %s: %s holds %q, which is not the store's; move it away", r.root, inTheWay, names[0])
		}
	case err != nil || life == "":
		return err
	default:
		inTheWay = filepath.Join(inTheWay, life)
	}
	err = r.fs.Remove(inTheWay)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return r.explain(err)
}

func (r *register) makeShard(hash string) error {
	r.mu.Lock()
	delete(r.synced, hash[:2])
	r.mu.Unlock()
	err := r.placeFolder(r.shard(hash), "shard")
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.refurnish(); err == nil {
			err = r.placeFolder(r.shard(hash), "shard")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return r.explain(err)
	}
	return nil
}

// syncBirth makes the entry of a key's folder durable, and that of its shard, unless this process knows that they are.
func (r *register) syncBirth(hash, life string) error {
	if r.recall.isSafe(hash, life) {
		return nil
	}
	r.mu.Lock()
	known := r.synced[hash[:2]]
	r.mu.Unlock()
	err := r.syncDir(r.shard(hash))
	if err == nil && !known {
		err = r.syncDir(r.keys)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // wiped since: it did take effect
	}
	if err != nil {
		return r.explain(err)
	}
	r.recall.safe(hash, life)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced[hash[:2]] = true
	return nil
}
