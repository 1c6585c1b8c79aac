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
	// tidySlice bounds one piece of tidying: no process stays longer for it.
	tidySlice = 200 * time.Millisecond
	// tidyAgain is when the next piece may follow one that ran out of time.
	tidyAgain = 10 * time.Second
	// leftoverAge is how old a staged file must be to have been left by a process that will not come back to it. One that does come
	// back finds its file gone, and reads the key anew.
	leftoverAge = time.Hour
	stampName   = "croft-tidied.json"
	stampMost   = 4 << 10
)

// tidying sweeps a store in the background after a release: all processes on a directory together begin it once in an eighth of the retention.
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

// tidyStamp is what the processes on a directory tell each other, in the staging folder.
type tidyStamp struct {
	// Due is when the next piece may begin, From the shard it begins at.
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

// early reports whether due lies ahead of now; one too far ahead was set by a clock that was wrong.
func (t *tidying) early(due, now time.Time) bool {
	return now.Before(due) && due.Before(now.Add(t.retention))
}

// piece does one piece of the work, unless another process has, and says when the next is due. Its errors are nobody's: the next one meets
// them again, and so does whoever calls Sweep.
func (t *tidying) piece(ctx context.Context, now time.Time) (due time.Time) {
	stamp := t.read()
	if t.early(stamp.Due, now) {
		return stamp.Due
	}
	mine := tidyStamp{Due: now.Add(t.retention / 8)}
	t.write(mine) // before the work, so that others do not begin it, too
	shards, err := t.reg.shards()
	if err != nil {
		return mine.Due
	}
	defer t.reg.emptyGraves()
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

// shard drops what may be dropped in one shard, and reports whether it got to its end.
func (t *tidying) shard(ctx context.Context, shard string, now time.Time) bool {
	for entry, err := range t.reg.scanShard(ctx, shard) {
		if ctx.Err() != nil {
			return false
		}
		if err != nil || !entry.Record.Droppable(now, t.retention) {
			continue
		}
		if err := t.reg.Drop(ctx, entry.Record.Key, entry.Version); err != nil && !errors.Is(err, cas.ErrConflict) {
			return true // the disk is not well: no reason to try all others
		}
	}
	return ctx.Err() == nil
}

// leftovers removes from the staging folder what stopped processes have left
// there, and old acts. It removes nothing that is not the store's.
func (t *tidying) leftovers(ctx context.Context) error {
	t.reg.emptyGraves()
	_ = t.removeOld(ctx, t.reg.acts, isAct) // no store needs them
	err := t.removeOld(ctx, t.reg.tmp, isTemp)
	t.reg.emptyGraves()
	return err
}

// removeOld removes from a folder what is the store's, by its name, and older
// than leftoverAge.
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
		if now.IsZero() { // files have their time from the file system, whatever clock the store goes by
			if now, err = t.reg.clock.real(); err != nil {
				return t.reg.explain(err)
			}
		}
		if now.Sub(info.ModTime()) <= leftoverAge {
			continue
		}
		if info.IsDir() { // in one step: the maker of a half-removed folder, if it does come back, must not put it in place
			grave := t.reg.temp("dropped")
			if t.reg.fs.Rename(path, grave) == nil {
				t.reg.mu.Lock()
				t.reg.graves = append(t.reg.graves, grave)
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
		return tidyStamp{} // never tidied, or the stamp was lost: tidying too often does no harm
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

// close waits for the piece under way.
func (t *tidying) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.done.Wait()
}
