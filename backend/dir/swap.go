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

// pileMost bounds the versions behind the newest. A swap that need not be
// durable prunes only if there are more.
const pileMost = 16

// installTries is how often a birth clears obstacles out of its way before it
// reports a conflict.
const installTries = 8

// Swap links a finished file as the version after old. It then checks that this
// version is the newest. If old is "", it begins the key's life. It returns
// cas.ErrConflict if another process was first.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, durable bool) error {
	data, err := encodeRecord(next)
	if err != nil {
		return err
	}
	if old == "" {
		return r.beginLife(ctx, next, data)
	}
	at, err := parsePosition(old)
	if err != nil {
		return err
	}
	temp, file, err := r.stage(data)
	if errors.Is(err, fs.ErrNotExist) { // the store was wiped, and the key with it
		if err := r.reinitialize(); err != nil {
			return err
		}
		return cas.ErrConflict
	}
	if err != nil {
		return r.notStaged(err)
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

// link gives the staged file its name. It returns ErrConflict if the name is
// taken or the life is over.
func (r *register) link(temp, target string) error {
	err := r.fs.Link(temp, target)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		// Over NFS a request may be sent twice. The error may be the reply to
		// the second.
		if r.same(temp, target) {
			return nil
		}
		return cas.ErrConflict
	case errors.Is(err, fs.ErrNotExist):
		return cas.ErrConflict // the life was dropped or wiped, or a sweep removed the staged file
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

// confirm checks that version n+1, just made, is the newest and that version n
// still exists. If n is gone, n+1 may be a stray: its maker was stopped after
// reading n, others went on, and they pruned the number n+1. A stray is below
// the newest version, so no reader takes it, and confirm removes it.
func (r *register) confirm(folder string, n uint64) ([]uint64, error) {
	numbers, err := r.numbers(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cas.ErrConflict
	}
	if err != nil {
		return nil, r.explain(err)
	}
	// Only the maker of n+1 and its successors prune n.
	follows := slices.Contains(numbers, n)
	if follows && numbers[len(numbers)-1] == n+1 {
		return numbers, nil
	}
	if !follows {
		_ = r.fs.Remove(filepath.Join(folder, versionName(n+1)))
	}
	// The change may have counted, if another process has already followed it.
	// The law then finds it in the history.
	return nil, cas.ErrConflict
}

// settle makes a confirmed version durable and then prunes the versions before
// it. It syncs first, because a power cut must not take both the old version
// and the new one. It prunes upwards and stops at the first failure: if a
// version is absent, all versions before it are absent, too.
//
// Before settle prunes the first version, it syncs the folders that lead to the
// life. The life's maker may have been killed before it did.
func (r *register) settle(hash, life string, before []uint64) error {
	folder := filepath.Join(r.home(hash), life)
	if err := r.syncDir(folder); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // dropped or wiped since: the change did take effect
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

// Settle makes durable a version that the caller found. Its maker may have been
// killed before it synced it.
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

// beginLife begins a key's life. It makes a folder with the first version in
// the staging folder, and renames it into place. The rename fails if the key
// has a life already. The life is durable when beginLife returns.
func (r *register) beginLife(ctx context.Context, next tenure.Record, data []byte) error {
	hash := hashOf(next.Key)
	life := r.newLife(next.Acquired)
	ready, file, err := r.stageLife(life, data)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.reinitialize(); err == nil {
			ready, file, err = r.stageLife(life, data)
		}
	}
	if err != nil {
		return r.notStaged(err)
	}
	if ctx.Err() != nil {
		r.unstage(ready, life)
		return context.Cause(ctx)
	}
	if err := r.install(ctx, ready, hash, life); err != nil {
		r.unstage(ready, life)
		return err
	}
	r.recall.keep(hash, position{life, 1}, next, file)
	return r.syncBirth(hash, life)
}

// stageLife makes a key's folder in the staging folder. It makes everything
// before it syncs anything: most file systems then sync all of it at once.
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

// install renames a staged folder to the key's path.
func (r *register) install(ctx context.Context, ready, hash, life string) error {
	home := r.home(hash)
	for range installTries {
		err := r.fs.Rename(ready, home)
		if err == nil {
			return nil
		}
		taken := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist)
		if !taken && !errors.Is(err, fs.ErrNotExist) {
			return r.explain(err)
		}
		h, err := r.readHead(ctx, hash, emptyTries)
		switch {
		case err != nil:
			return err
		case h.at.life == life:
			return nil // over NFS: the reply to a rename that was sent twice
		case h.dropped:
			if err := r.trashLife(hash, h.at.life); err != nil {
				return err
			}
			r.emptyTrash()
		case h.at.life != "":
			return cas.ErrConflict
		case taken:
			if err := r.clear(hash); err != nil {
				return err
			}
		default: // the shard is missing, or a wipe took the staged folder
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

// clear removes an empty folder that is in the way of a birth. It is a life's
// folder without a version, because somebody moved a damaged version away. Or
// it is the key's own folder, left by an unfinished drop. rmdir removes no
// folder in use.
func (r *register) clear(hash string) error {
	inTheWay := r.home(hash)
	life, err := r.life(hash)
	switch {
	case errors.Is(err, errEmpty):
		names, err := r.fs.Names(inTheWay)
		if err == nil && len(names) > 0 {
			return fmt.Errorf("store %s: %s holds %q, which is not the store's; move it away",
				r.root, inTheWay, names[0])
		}
	case err != nil || life == "":
		return err
	default:
		inTheWay = filepath.Join(inTheWay, life)
	}
	err = r.fs.Remove(inTheWay)
	if err == nil || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return r.explain(err)
}

func (r *register) makeShard(hash string) error {
	r.mu.Lock()
	delete(r.synced, hash[:2])
	r.mu.Unlock()
	err := r.installFolder(r.shard(hash), "shard")
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.reinitialize(); err == nil {
			err = r.installFolder(r.shard(hash), "shard")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return r.explain(err)
	}
	return nil
}

// syncBirth makes the entries of a key's folder and of its shard durable,
// unless this process knows that they are.
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
		return nil // wiped since: the birth did take effect
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
