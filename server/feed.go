package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/terms"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

const (
	// lookEvery is the least time between two looks at the store. A look takes
	// at most a tenth of the time, however many keys there are.
	lookEvery = time.Second
	// lookBack is how far before the last look the next one begins. A change
	// may become visible that much later than its time says.
	lookBack = 10 * time.Second
	// lookBehind is how far the beginning of looks stays behind while they
	// fail.
	lookBehind = time.Hour
	// lookWithin bounds one look.
	lookWithin = time.Minute
	// maxSeen is how many changes are remembered as told. There are more only
	// if looks fail for long while very much happens.
	maxSeen = 4 * maxChanges
	// maxChanges is how many changes one look tells, and how many a feed keeps.
	maxChanges = 8192
	// maxGets is how many records one look reads because the listing left out
	// their history.
	maxGets = 1024
	// maxResume is how old the beginning of a resumed stream may be. A store
	// forgets keys after that.
	maxResume = store.DefaultRetention
)

// news are the changes that one look has found. mark is the store's time when
// the look began: a stream that has got them has got all changes before.
type news struct {
	mark    time.Time
	damaged error // about the records that could not be read, if there are some
	changes []wire.Change
	texts   []string // the changes as streams send them; nil if they are not written yet
	// missed has keys with changes that are not among these. Only clients that
	// may read one of them are told. all says that there are more such keys.
	missed map[string]bool
	all    bool
}

// text is a change as streams send it.
func (b *news) text(i int) string {
	if b.texts != nil {
		return b.texts[i]
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", b.changes[i].Kind, b.changes[i].Bytes())
}

// write writes the changes once for all streams.
func (b *news) write() {
	texts := make([]string, len(b.changes))
	for i := range texts {
		texts[i] = b.text(i)
	}
	b.texts = texts
}

// miss notes that not all changes of a key are told.
func (b *news) miss(key string) {
	switch {
	case len(b.missed) >= maxChanges:
		b.all = true
	case b.missed == nil:
		b.missed = map[string]bool{key: true}
	default:
		b.missed[key] = true
	}
}

// look finds the changes after from, and those shortly before, which may have
// become visible since. It reads all records that begin with prefix, and keeps
// none. It is not about damaged records: no store changes them.
func look(ctx context.Context, st store.Store, prefix string, from time.Time) (b news, err error) {
	since := from.Add(-lookBack)
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if b.mark, err = st.Now(ctx); err != nil {
		return b, err
	}
	gets := 0
	for rec, failed := range st.List(ctx, prefix) {
		if failed != nil {
			err = b.failure(failed)
			break
		}
		if refusals.Reserved(rec.Key) || !changed(rec, since, b.mark) {
			continue
		}
		if len(rec.History) == 0 && rec.Acquired.After(since) && rec.Terms > 1 && gets < maxGets {
			gets++
			if whole, failed := st.Get(ctx, rec.Key); failed == nil && !whole.IsZero() {
				rec = whole
			}
		}
		if len(rec.History) == 0 {
			if rec.Acquired.After(since) && rec.Terms > 1 {
				b.miss(rec.Key)
			}
			rec = terms.Join(rec, nil)
		}
		if len(rec.History) >= tenure.HistoryLen && rec.History[0].Acquired.After(from) {
			b.miss(rec.Key) // it has forgotten some
		}
		b.changes = wire.ChangesOf(b.changes, rec, since, b.mark)
		b.bound(2 * maxChanges)
	}
	refused, failed := refusals.ReadSince(ctx, st, prefix, since)
	for _, r := range refused {
		b.changes = append(b.changes, wire.ChangeOf(r))
	}
	b.bound(maxChanges)
	failed = b.failure(failed)
	return b, cmp.Or(err, failed)
}

// failure returns the error of a listing, unless only damaged records are
// missing in it.
func (b *news) failure(err error) error {
	if store.OnlyDamaged(err) {
		b.damaged = errors.Join(b.damaged, err)
		return nil
	}
	return err
}

// changed reports whether something in a record has happened after since. It
// needs no history.
func changed(rec tenure.Record, since, now time.Time) bool {
	return rec.Acquired.After(since) || rec.Deadline.After(since) && (rec.Ended != "" || !rec.Deadline.After(now))
}

// bound sorts the changes, and drops the oldest if there are too many.
func (b *news) bound(most int) {
	if most == 2*maxChanges && len(b.changes) <= most {
		return
	}
	slices.SortStableFunc(b.changes, func(x, y wire.Change) int {
		return cmp.Or(x.Time.Compare(y.Time), strings.Compare(x.Key, y.Key))
	})
	if over := len(b.changes) - maxChanges; over > 0 {
		for _, c := range b.changes[:over] {
			b.miss(c.Key)
		}
		b.changes = slices.Delete(b.changes, 0, over)
	}
}

// feed looks at the store for all streams of events together. Its goroutine
// runs only while there are streams.
type feed struct {
	st    store.Store
	every time.Duration
	told  func(error) // hears why a look failed

	joining slots      // lets one stream at a time begin the goroutine
	mu      sync.Mutex // guards the rest
	streams int
	stop    context.CancelFunc // nil while nothing runs
	mark    time.Time          // of the last whole look
	seen    map[seenChange]time.Time
	batches []news        // of the looks that have found something
	first   int           // the number of batches[0]
	woken   chan struct{} // closed when a batch comes or the feed ends
}

// seenChange tells changes apart.
type seenChange struct {
	key, change string
	token       int64
	at          int64
	total       int
}

func idOf(c wire.Change) seenChange {
	return seenChange{c.Key, c.Change, int64(c.Token), c.Time.UnixMicro(), c.Total}
}

// join adds a stream until leave is called. The stream gets the batches from
// next on; mark is the time up to which earlier ones have told everything.
func (f *feed) join(ctx context.Context) (next int, mark time.Time, leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	select {
	case f.joining <- struct{}{}:
		defer f.joining.leave()
	case <-ctx.Done():
		return 0, mark, nil, store.Unknown(ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop == nil {
		f.mu.Unlock()
		// Changes before the first stream are not told: this look only
		// remembers them.
		now, err := f.st.Now(ctx)
		var b news
		if err == nil {
			b, err = look(ctx, f.st, "", now)
		}
		f.mu.Lock()
		if b.mark.IsZero() {
			return 0, mark, nil, err
		}
		f.mark, f.seen = b.mark, map[seenChange]time.Time{}
		f.fresh(b.changes)
		life, stop := context.WithCancel(context.Background())
		f.stop, f.woken = stop, make(chan struct{})
		go f.run(life)
	}
	f.streams++
	return f.first + len(f.batches), f.mark, sync.OnceFunc(f.leave), nil
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams--; f.streams == 0 {
		f.stop()
		f.stop = nil
		f.first += len(f.batches)
		f.batches, f.seen = nil, nil
	}
}

// fresh returns the changes that were not seen before, and remembers them. The
// caller holds the mutex.
func (f *feed) fresh(changes []wire.Change) []wire.Change {
	var some []wire.Change
	for _, c := range changes {
		if _, old := f.seen[idOf(c)]; !old {
			f.seen[idOf(c)] = c.Time
			some = append(some, c)
		}
	}
	return some
}

// run looks again and again, until ctx ends.
func (f *feed) run(ctx context.Context) {
	pause, damage := f.every, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		f.mu.Lock()
		from := f.mark
		f.mu.Unlock()
		begun := time.Now()
		b, err := look(ctx, f.st, "", from)
		pause = max(f.every, 9*time.Since(begun))
		if err != nil && ctx.Err() == nil {
			f.told(err)
		}
		if text := fmt.Sprint(b.damaged); text != damage { // once, and not every second
			if damage = text; b.damaged != nil {
				f.told(b.damaged)
			}
		}
		f.add(ctx, b, err == nil)
	}
}

// add hands the news of a look to the streams. If the look could not read
// everything, the next look begins at the same time again.
func (f *feed) add(ctx context.Context, b news, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // another run may have begun
	}
	b.changes = f.fresh(b.changes)
	if !whole && len(f.seen) > maxSeen {
		whole, b.all = true, true // give up looking for what the looks left out
	}
	if whole {
		f.mark = b.mark
	} else if late := b.mark.Add(-lookBehind); late.After(f.mark) {
		f.mark = late
	}
	b.mark = f.mark
	for id, at := range f.seen {
		if !at.After(f.mark.Add(-lookBack)) {
			delete(f.seen, id)
		}
	}
	if len(b.changes) == 0 && len(b.missed) == 0 && !b.all {
		return
	}
	b.write()
	f.batches = append(f.batches, b)
	kept := 0
	for i := len(f.batches) - 1; i > 0; i-- {
		if kept += len(f.batches[i].changes) + len(f.batches[i].missed); kept > maxChanges {
			f.first += i
			f.batches = slices.Clone(f.batches[i:])
			break
		}
	}
	close(f.woken)
	f.woken = make(chan struct{})
}

// after returns the batches from next on, the number of the one behind them,
// and the time up to which they tell everything. woken is closed when there are
// more. behind reports that the stream was too slow: some batches are gone.
func (f *feed) after(next int) (some []news, more int, mark time.Time, woken <-chan struct{}, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next < f.first {
		return nil, next, f.mark, f.woken, true
	}
	return slices.Clone(f.batches[next-f.first:]), f.first + len(f.batches), f.mark, f.woken, false
}
