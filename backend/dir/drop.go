package dir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store/cas"
)

// Drop ends a key's life. A tombstone takes the place of the version after old,
// by the same rule as any other version, and no version follows it. Then Drop
// moves the life's folder away. A life's name is never used again, so a late
// process finds nothing to move.
func (r *register) Drop(_ context.Context, key string, old cas.Version) error {
	at, err := parsePosition(old)
	if err != nil {
		return err
	}
	hash := hashOf(key)
	folder := filepath.Join(r.home(hash), at.life)
	// A tombstone is a folder: it is made in one step, and has no content to
	// tear. Nothing is synced, because losing a drop loses nothing.
	err = r.mkdir(filepath.Join(folder, versionName(at.number+1)))
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return cas.ErrConflict
	case err != nil:
		return r.explain(err)
	}
	if _, err := r.confirm(folder, at.number); err != nil {
		return err
	}
	return r.trashLife(hash, at.life)
}

// trashLife moves a life's folder to the staging folder, once its newest
// version is a tombstone. Any process may do that, any number of times.
// emptyTrash removes the folder later.
//
// The shard stays. Other processes know that it is durable, and would not sync
// a new one.
func (r *register) trashLife(hash, life string) error {
	trashed := r.temp("dropped")
	err := r.fs.Rename(filepath.Join(r.home(hash), life), trashed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r.explain(err)
	}
	_ = r.fs.Remove(r.home(hash)) // rmdir: it fails if the key was born again
	if err != nil {
		trashed = ""
	}
	r.mu.Lock()
	if trashed != "" {
		r.trash = append(r.trash, trashed)
	}
	many := len(r.trash) >= trashMost
	r.mu.Unlock()
	if many {
		r.emptyTrash()
	}
	return nil
}

// trashMost is how many trashed folders are removed together.
const trashMost = 256

// emptyTrash removes the folders that trashLife has moved away. It syncs the
// staging folder first: otherwise a power cut could undo the move after the
// tombstone and the newest version are gone, and an older version would count
// again.
func (r *register) emptyTrash() {
	r.mu.Lock()
	trash := r.trash
	r.trash = nil
	r.mu.Unlock()
	if len(trash) == 0 || r.syncDir(r.tmp) != nil {
		return // a later sweep finds them
	}
	for _, trashed := range trash {
		r.removeAll(trashed, trashDepth)
	}
}

// trashDepth is the depth of a trashed folder: a key's folder, a life's, a
// tombstone.
const trashDepth = 3

// removeAll removes a folder in the staging folder and everything in it. If it
// fails, a later sweep removes the rest. Other users may put a link in a
// folder's place at any moment: removeAll removes the link, and never follows
// it.
func (r *register) removeAll(path string, depth int) {
	if r.fs.Remove(path) == nil || depth == 0 {
		return
	}
	names, err := r.fs.Names(path)
	if err != nil {
		return
	}
	for _, name := range names {
		r.removeAll(filepath.Join(path, name), depth-1)
	}
	_ = r.fs.Remove(path)
}

// Scan yields the entry of every key. It reports everything that it could not
// read in one error at the end, so that the error hides no entry.
func (r *register) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		if err := r.checkMount(); err != nil {
			yield(cas.Entry{}, err)
			return
		}
		shards, err := r.shards()
		if err != nil {
			yield(cas.Entry{}, err)
			return
		}
		var failed failures.List
		for _, shard := range shards {
			for entry, err := range r.scanShard(ctx, shard) {
				if err != nil && ctx.Err() == nil {
					failed.Add(err)
					continue
				}
				if !yield(entry, err) || err != nil {
					return
				}
			}
		}
		if err := failed.Err(); err != nil {
			yield(cas.Entry{}, err)
		}
	}
}

// shards lists the folders that contain keys' folders, in order.
func (r *register) shards() ([]string, error) {
	names, err := r.fs.Names(r.keys)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, r.explain(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isHex(name, 2) })
	slices.Sort(names)
	return names, nil
}

// scanShard yields the entries of one shard, with errors between them.
func (r *register) scanShard(ctx context.Context, shard string) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		hashes, err := r.fs.Names(filepath.Join(r.keys, shard))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(cas.Entry{}, r.explain(err))
			}
			return
		}
		for _, hash := range hashes {
			if !isHex(hash, 64) {
				continue
			}
			h, err := r.readHead(ctx, hash, 1)
			if h.dropped {
				err = r.trashLife(hash, h.at.life) // a process was stopped in the middle of a drop
			}
			var entry cas.Entry
			if err == nil {
				entry, err = r.entry(h)
			}
			if err == nil && entry.Record.IsZero() {
				continue
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

func isHex(name string, length int) bool {
	return len(name) == length && strings.Trim(name, "0123456789abcdef") == ""
}
