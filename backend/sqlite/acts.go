package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/json"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

const (
	// actsEvery is how often a process that listens for operators' acts, and
	// waits for no key, looks whether another has changed the file.
	actsEvery = 50 * time.Millisecond
	// mostActs is how many acts are kept for others to read. Listeners that
	// miss older ones find them by renewing.
	mostActs = mostInTransaction
)

// Acts returns a channel of the keys that operators act on. Acts of this
// process are told at once, and those of others within some 50 ms.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var last int64 // any later act is told
	err := s.reading(ctx, func(b *base) error {
		return b.db.QueryRowContext(ctx, sqlLastAct).Scan(&last)
	})
	if err != nil {
		return nil, store.Unknown(err)
	}
	c := s.watch.listen(ctx, last)
	if err := s.beginToLook(); err != nil {
		return nil, err
	}
	return c, nil
}

// listen adds a listener. The first one says which act was the last so far.
func (w *watches) listen(ctx context.Context, last int64) <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.heard {
		w.heard, w.lastAct = true, last
		w.unread = true // there may be one since, in a file already looked at
	}
	return w.acts.Listen(ctx)
}

// readActs tells listeners of the acts that it has not read before.
func (w *watches) readActs(conn *sql.Conn) error {
	w.mu.Lock()
	last := w.lastAct // only the caller changes it while somebody listens
	w.mu.Unlock()
	rows, err := conn.QueryContext(context.Background(), sqlActs, last, fence.MaxKey, mostActs)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var key string
		if err := rows.Scan(&id, &key); err != nil {
			return err
		}
		if last = max(last, id); fence.CheckKey(key) == nil {
			w.acts.Tell(key)
		}
	}
	w.mu.Lock()
	w.lastAct = last
	w.mu.Unlock()
	return rows.Err()
}

// noteActs leaves operators' acts for other processes to read.
func (x *transaction) noteActs() error {
	if len(x.acts) == 0 {
		return nil
	}
	keys, err := json.Marshal(x.acts)
	if err != nil {
		return err
	}
	ctx := context.Background()
	noted := []sqldriver.NamedValue{{Ordinal: 1, Value: string(keys)}}
	if _, err := x.raw.ExecContext(ctx, sqlNoteActs, noted); err != nil {
		return err
	}
	kept := []sqldriver.NamedValue{{Ordinal: 1, Value: int64(mostActs)}}
	_, err = x.raw.ExecContext(ctx, sqlTrimActs, kept)
	return err
}
