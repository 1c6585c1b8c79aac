package dir

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/croft-dev/croft/store/cas"
)

const (
	// tidySlice bounds one piece of tidying, so that no process stays longer
	// for it.
	tidySlice = 200 * time.Millisecond
	// tidyAgain is the pause after a piece that ran out of time.
	tidyAgain = 10 * time.Second
	// leftoverAge is how old a staged file must be to count as left behind. If
	// its maker comes back after all, it finds its file gone and reads the key
	// again.
	leftoverAge = time.Hour
	stampName   = "croft-tidied.json"
	stampMost   = 4 << 10
)

// tidying sweeps a store in the background after a release. All processes on a
// directory together begin it once in an eighth of the retention.
type tidying struct {
	reg       *register
	retention time.Duration
	slice     time.Duration // bounds one piece; tests may need more than tidySlice

	mu     sync.Mutex
	due    time.Time // on the store's clock, as far as this process knows
	busy   bool
	closed bool
	done   sync.WaitGroup
}

// tidyStamp is a file in the staging folder. It tells all processes on a
// directory when to tidy.
type tidyStamp struct {
	// Due is when the next piece may begin. From is the shard it begins at.
	Due  time.Time `json:"due"`
	From string    `json:"from,omitempty"`
}

// soon begins a piece of tidying in the background if it is due at now.
func (t *tidying) soon(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.busy || t.early(t.due, now) {
		return
	}
	t.busy = true
	t.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.slice)
		defer cancel()
		due := t.piece(ctx, now)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy, t.due = false, due
	})
}

// early reports whether due is still ahead of now. It ignores a time that is
// too far ahead: a wrong clock has set it.
func (t *tidying) early(due, now time.Time) bool {
	return now.Before(due) && due.Before(now.Add(t.retention))
}

// piece does one piece of the work, unless another process has done it, and
// returns the time when the next is due. It drops errors: the next piece meets
// them again, and so does a caller of Sweep.
func (t *tidying) piece(ctx context.Context, now time.Time) (due time.Time) {
	stamp := t.read()
	if t.early(stamp.Due, now) {
		return stamp.Due
	}
	mine := tidyStamp{Due: now.Add(t.retention / 8)}
	t.write(mine) // before the work, so that no other process begins it
	shards, err := t.reg.shards()
	if err != nil {
		return mine.Due
	}
	defer t.reg.emptyTrash()
	for _, shard := range shards {
		if shard < stamp.From {
			continue
		}
		if !t.shard(ctx, shard, now) {
			mine = tidyStamp{Due: now.Add(min(tidyAgain, t.retention/8)), From: shard}
			t.write(mine)
			return mine.Due
		}
	}
	_ = t.leftovers(ctx)
	return mine.Due
}

// shard drops the droppable records in one shard. It reports whether it reached
// the shard's end in time.
func (t *tidying) shard(ctx context.Context, shard string, now time.Time) bool {
	for entry, err := range t.reg.scanShard(ctx, shard) {
		if ctx.Err() != nil {
			return false
		}
		if err != nil || !entry.Record.Droppable(now, t.retention) {
			continue
		}
		if err := t.reg.Drop(ctx, entry.Record.Key, entry.Version); err != nil && !errors.Is(err, cas.ErrConflict) {
			return true // the disk is failing: do not try the others
		}
	}
	return ctx.Err() == nil
}

// leftovers removes the files that stopped processes have left in the staging
// folder, and old acts. It removes nothing but the store's own files.
func (t *tidying) leftovers(ctx context.Context) error {
	t.reg.emptyTrash()
	_ = t.removeOld(ctx, t.reg.acts, isAct) // no store needs them
	err := t.removeOld(ctx, t.reg.tmp, isTemp)
	t.reg.emptyTrash()
	return err
}

// removeOld removes from a folder the store's own files, as told by their
// names, that are older than leftoverAge.
func (t *tidying) removeOld(
	ctx context.Context, folder string, ours func(name string) bool,
) error {
	names, err := t.reg.fs.Names(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.reg.explain(err)
	}
	var now time.Time
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		path := filepath.Join(folder, name)
		if !ours(name) {
			continue
		}
		info, err := t.reg.fs.Lstat(path)
		if err != nil {
			continue
		}
		if now.IsZero() { // the real clock, not Options.now: file times are real
			if now, err = t.reg.clock.real(); err != nil {
				return t.reg.explain(err)
			}
		}
		if now.Sub(info.ModTime()) <= leftoverAge {
			continue
		}
		if info.IsDir() {
			// Move it in one step. If its maker does come back, it must not
			// put a half-removed folder in place.
			trashed := t.reg.temp("dropped")
			if t.reg.fs.Rename(path, trashed) == nil {
				t.reg.mu.Lock()
				t.reg.trash = append(t.reg.trash, trashed)
				t.reg.mu.Unlock()
			}
			continue
		}
		_ = t.reg.fs.Remove(path)
	}
	return nil
}

func (t *tidying) read() tidyStamp {
	var stamp tidyStamp
	data, err := t.reg.fs.ReadFile(filepath.Join(t.reg.tmp, stampName), stampMost)
	if err != nil || json.Unmarshal(data, &stamp) != nil {
		return tidyStamp{} // never tidied, or the stamp is lost: tidying too often does no harm
	}
	return stamp
}

func (t *tidying) write(stamp tidyStamp) {
	data, err := json.Marshal(stamp)
	if err != nil {
		return
	}
	temp, _, err := t.reg.stage(data)
	if err != nil {
		return
	}
	if t.reg.fs.Rename(temp, filepath.Join(t.reg.tmp, stampName)) != nil {
		_ = t.reg.fs.Remove(temp)
	}
}

// close waits for the running piece.
func (t *tidying) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.done.Wait()
}
