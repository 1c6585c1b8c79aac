package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/dir"
)

// benchDir compares a lone acquire and release with the disk operations that
// they need. A grant and a release are each one file created, written and
// synced, one link, and one folder synced.
func benchDir(ctx context.Context, b *bench) error {
	floorDir, err := b.folder("floor")
	if err != nil {
		return err
	}
	client, end, err := b.client("dir")
	if err != nil {
		return err
	}
	defer end()
	return b.compare(ctx, func(t *table, r []result) {
		t.atMost("acquire + release to the floor", ratio(r[1], r[0]), 1.5)
	},
		contender{
			"floor: 2 × (create, fsync, link, folder fsync)", 200,
			func(_ context.Context, n int) error { return floor(floorDir, n) },
		},
		contender{"croft: acquire + release", 200, func(ctx context.Context, n int) error {
			return cycle(ctx, client, "bench/lone", n)
		}},
	)
}

// client opens a client on a fresh directory store.
func (b *bench) client(name string) (*croft.Client, func(), error) {
	path, err := b.folder(name)
	if err != nil {
		return nil, nil, err
	}
	st, err := dir.Open(path, nil)
	if err != nil {
		return nil, nil, err
	}
	client := croft.New(st, nil)
	return client, func() {
		_ = client.Close()
		_ = st.Close()
	}, nil
}

// cycle acquires and releases one key n times.
func cycle(ctx context.Context, client *croft.Client, key string, n int) error {
	for range n {
		lease, err := client.Acquire(ctx, key, &croft.LeaseOptions{TTL: time.Minute})
		if err != nil {
			return err
		}
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// floor does, n times twice, the disk operations of a grant or a release.
func floor(root string, n int) error {
	body := make([]byte, 8500) // a record with a full history
	key := filepath.Join(root, "key")
	if err := os.MkdirAll(key, 0o700); err != nil {
		return err
	}
	for i := range 2 * n {
		tmp := filepath.Join(root, fmt.Sprintf("tmp-%d", i))
		version := filepath.Join(key, fmt.Sprint(i))
		if err := writeSynced(tmp, body); err != nil {
			return err
		}
		if err := os.Link(tmp, version); err != nil {
			return err
		}
		if err := os.Remove(tmp); err != nil {
			return err
		}
		if err := syncDir(key); err != nil {
			return err
		}
		if err := os.Remove(version); err != nil {
			return err
		}
	}
	return nil
}

func writeSynced(path string, body []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(body); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// benchCombine compares one goroutine with many, each on its own key. The
// client combines their calls, and the disk combines their syncs.
func benchCombine(ctx context.Context, b *bench) error {
	const goroutines = 64
	client, end, err := b.client("combine")
	if err != nil {
		return err
	}
	defer end()
	return b.compare(ctx, func(*table, []result) {},
		contender{"one goroutine", 128, func(ctx context.Context, n int) error {
			return cycle(ctx, client, "bench/one", n)
		}},
		contender{"64 goroutines, distinct keys", 512, func(ctx context.Context, n int) error {
			var wg sync.WaitGroup
			errs := make(chan error, goroutines)
			for g := range goroutines {
				wg.Go(func() { errs <- cycle(ctx, client, fmt.Sprintf("bench/%d", g), n/goroutines) })
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				if err != nil {
					return err
				}
			}
			return nil
		}},
	)
}
