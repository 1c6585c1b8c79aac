package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Get returns the record of a key with its history. Its error matches
// fence.ErrInvalid for a bad key and [store.ErrUnknown] otherwise.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	if err := s.usable(ctx); err != nil {
		return tenure.Record{}, err
	}
	read, err := wait.For(ctx, func() (sound[tenure.Record], error) { return s.records(ctx, []string{key}, true) })
	if err == nil {
		err = store.Fault(errors.Join(read.damaged...))
	}
	if err != nil {
		return tenure.Record{}, store.Unknown(err)
	}
	if len(read.found) == 0 {
		return tenure.Record{}, nil
	}
	return read.found[0], nil
}

// sound holds the values that could be read, and for each damaged one an error
// that matches ErrDamaged.
type sound[T any] struct {
	found   []T
	damaged []error
}

// records reads the records of keys, in their order. It leaves out keys without
// a record.
func (s *Store) records(ctx context.Context, keys []string, history bool) (read sound[tenure.Record], err error) {
	type part struct {
		indexes []int
		*call[*goredis.StringSliceCmd]
	}
	var parts []*part
	var calls []*call[*goredis.StringSliceCmd]
	open := map[string]*part{}
	for i, key := range keys {
		namespace := fence.Namespace(key)
		p := open[namespace]
		if p == nil || len(p.indexes) == chunkSize {
			p = &part{call: newCall(s.read, goredis.NewStringSliceCmd, 0, 3)}
			open[namespace] = p
			parts, calls = append(parts, p), append(calls, p.call)
		}
		p.indexes = append(p.indexes, i)
		p.args = append(p.args, s.names.record(key))
	}
	now := ""
	if s.clock != nil {
		now = strconv.FormatInt(s.at(), 10)
	}
	for _, p := range parts {
		p.args[2] = len(p.indexes)
		p.args = append(p.args, now, s.retention.Microseconds(), history)
	}
	runAll(ctx, s.client, calls)
	records := make([]tenure.Record, len(keys))
	for _, p := range parts {
		texts, err := p.cmd.Result()
		if err != nil {
			return read, explainStore(err)
		}
		if len(texts) != len(p.indexes) {
			return read, errReply
		}
		for k, i := range p.indexes {
			if records[i], err = parseRecord(keys[i], texts[k], history); err != nil {
				read.damaged = append(read.damaged, damaged(keys[i], err))
			}
		}
	}
	read.found = slices.DeleteFunc(records, tenure.Record.IsZero)
	return read, nil
}

// List yields the records whose key begins with prefix, without their history.
// A damaged record does not hide the others: the error comes last. If prefix
// contains a whole namespace, List reads the index of that namespace. Otherwise
// it first looks for indexes among all keys of the database.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(tenure.Record{}, err)
			return
		}
		keys, err := wait.For(ctx, func() (sound[string], error) { return s.keys(ctx, prefix) })
		if err != nil {
			yield(tenure.Record{}, store.Unknown(err))
			return
		}
		var failed failures.List
		failed.Add(keys.damaged...)
		for part := range slices.Chunk(keys.found, 4*chunkSize) {
			if err := s.usable(ctx); err != nil {
				yield(tenure.Record{}, err)
				return
			}
			records, err := wait.For(ctx, func() (sound[tenure.Record], error) { return s.records(ctx, part, false) })
			if err != nil {
				yield(tenure.Record{}, store.Unknown(err))
				return
			}
			failed.Add(records.damaged...)
			for _, rec := range records.found {
				if !yield(rec, nil) {
					return
				}
			}
		}
		if err := failed.Err(); err != nil {
			yield(tenure.Record{}, store.Unknown(err))
		}
	}
}

// keys returns the keys with a prefix that are in the indexes, in order. Some
// of their records may have expired.
func (s *Store) keys(ctx context.Context, prefix string) (read sound[string], err error) {
	var indexes []string
	if namespace, _, whole := strings.Cut(prefix, "/"); whole {
		indexes = []string{s.names.index(namespace)}
	} else {
		if indexes, err = s.indexes(ctx, prefix); err != nil {
			return read, err
		}
		// Keys of one segment have no namespace of their own.
		indexes = append(indexes, s.names.index(""))
	}
	slices.Sort(indexes)
	indexes = slices.Compact(indexes)
	cursors := make([]string, len(indexes))
	for i := range cursors {
		cursors[i] = "0"
	}
	for len(indexes) > 0 {
		if ctx.Err() != nil {
			return read, wait.Ended(ctx)
		}
		pages, err := s.pages(ctx, indexes, cursors)
		if err != nil {
			return read, err
		}
		var more, next []string
		for i, page := range pages {
			if page[0] == "!" {
				read.damaged = append(read.damaged, fmt.Errorf("%w: the index %.200q is none; delete it from Redis",
					ErrDamaged, indexes[i]))
				continue
			}
			for _, key := range page[1:] {
				// Another program may have written to the index. Skip keys that
				// no store lists there.
				if strings.HasPrefix(key, prefix) && fence.CheckKey(key) == nil &&
					s.names.index(fence.Namespace(key)) == indexes[i] {
					read.found = append(read.found, key)
				}
			}
			if page[0] != "0" {
				more, next = append(more, indexes[i]), append(next, page[0])
			}
		}
		indexes, cursors = more, next
	}
	slices.Sort(read.found)
	read.found = slices.Compact(read.found)
	return read, nil
}

// pages reads one page of each index: see keys.lua.
func (s *Store) pages(ctx context.Context, indexes, cursors []string) ([][]string, error) {
	calls := make([]*call[*goredis.StringSliceCmd], len(indexes))
	for i, index := range indexes {
		calls[i] = newCall(keysScript(), goredis.NewStringSliceCmd, 1, 1)
		calls[i].args = append(calls[i].args, index, cursors[i])
	}
	runAll(ctx, s.client, calls)
	pages := make([][]string, len(indexes))
	for i, c := range calls {
		var err error
		if pages[i], err = c.cmd.Result(); err != nil {
			return nil, explainStore(err)
		}
		if len(pages[i]) == 0 {
			return nil, errReply
		}
	}
	return pages, nil
}

// indexes finds the indexes of namespaces that begin with start, on all nodes.
func (s *Store) indexes(ctx context.Context, start string) ([]string, error) {
	var mu sync.Mutex
	var found []string
	scan := func(ctx context.Context, on goredis.Cmdable) error {
		pages := on.Scan(ctx, 0, s.names.indexes(start), 1000).Iterator()
		for pages.Next(ctx) {
			if name := pages.Val(); s.names.isIndex(name) {
				mu.Lock()
				found = append(found, name)
				mu.Unlock()
			}
		}
		return pages.Err()
	}
	var err error
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			return scan(ctx, node)
		})
	} else {
		err = scan(ctx, s.client)
	}
	return found, explainStore(err)
}

// Now returns the server's time. On a cluster it asks any node.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	if s.clock != nil {
		return tenure.Time(s.clock()), nil
	}
	now, err := wait.For(ctx, func() (time.Time, error) { return s.client.Time(ctx).Result() })
	if err != nil {
		return time.Time{}, store.Unknown(explainStore(err))
	}
	return tenure.Time(now), nil
}
