package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/json"
	"time"

	"github.com/croft-dev/croft/fence"
)

const (
	// actsEvery is how often a store with listeners but no waiters checks
	// whether another connection has changed the file.
	actsEvery = 50 * time.Millisecond
	// mostActs is how many acts the table keeps. A holder that misses an older
	// one learns of it by its next renewal.
	mostActs = mostInTransaction
)

// acts is the topic of operators' acts in a store's hub. No key is empty.
const acts = ""

// Acts returns a channel that receives the keys that operators act on. It
// receives acts of this process at once, and those of others within some 50 ms.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.watch.hub.Listen(ctx, acts)
}

// lastAct returns the id of the newest act.
func (s *Store) lastAct(ctx context.Context) (id int64, err error) {
	err = s.withDatabase(ctx, func(b *base) error {
		return b.db.QueryRowContext(ctx, sqlLastAct).Scan(&id)
	})
	return id, err
}

// readActs tells listeners of the acts that it has not read before.
func (w *watches) readActs(conn *sql.Conn) error {
	w.mu.Lock()
	last := w.lastAct
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
			w.hub.Acted(acts, key)
		}
	}
	w.mu.Lock()
	w.lastAct = last
	w.mu.Unlock()
	return rows.Err()
}

// noteActs writes operators' acts into the table, for other processes to read.
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
