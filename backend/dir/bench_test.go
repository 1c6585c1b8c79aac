package dir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/tenure"
)

// BenchmarkAcquireRelease is a whole term of a key that has a full history. It
// waits for the disk twice.
func BenchmarkAcquireRelease(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "store"), nil)
	defer st.Close()
	term := func() {
		req := acquire("bench/key", "ann")
		for _, req := range []tenure.Request{req, then(tenure.Release, req)} {
			if a := one(st, req); a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
	for range tenure.HistoryLen {
		term()
	}
	for b.Loop() {
		term()
	}
}

// BenchmarkFloor is the least that a term can cost on this disk. Twice it
// writes and syncs a file, links it, syncs the folder, and removes the old
// version.
func BenchmarkFloor(b *testing.B) {
	root := b.TempDir()
	p := newFixture(b)
	for range tenure.HistoryLen {
		req := acquire("k", "ann")
		p.must(req)
		p.must(then(tenure.Release, req))
	}
	data, err := os.ReadFile(p.newest("k")) // a term writes as much
	if err != nil {
		b.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	change := func() {
		n++
		temp, target := filepath.Join(root, "temp"), filepath.Join(root, fmt.Sprint(n))
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		must(err)
		_, err = f.Write(data)
		must(err)
		must(f.Sync())
		must(f.Close())
		must(os.Link(temp, target))
		d, err := os.Open(root)
		must(err)
		must(d.Sync())
		must(d.Close())
		must(os.Remove(temp))
		if n > 1 {
			must(os.Remove(filepath.Join(root, fmt.Sprint(n-1))))
		}
	}
	for b.Loop() {
		change()
		change()
	}
}

// BenchmarkFirstAcquire is a key's first grant.
func BenchmarkFirstAcquire(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "store"), nil)
	defer st.Close()
	n := 0
	for b.Loop() {
		n++
		if a := one(st, acquire(fmt.Sprintf("bench/%d", n), "ann")); a.Err != nil {
			b.Fatal(a.Err)
		}
	}
}

// BenchmarkRenew is a renewal, which syncs one file.
func BenchmarkRenew(b *testing.B) {
	st := open(b, filepath.Join(b.TempDir(), "store"), nil)
	defer st.Close()
	req := acquire("bench/key", "ann")
	if a := one(st, req); a.Err != nil {
		b.Fatal(a.Err)
	}
	for b.Loop() {
		if a := one(st, then(tenure.Renew, req)); a.Err != nil {
			b.Fatal(a.Err)
		}
	}
}

// BenchmarkGet reads a record with a full history.
func BenchmarkGet(b *testing.B) {
	p := newFixture(b)
	for range tenure.HistoryLen {
		req := acquire("k", "ann")
		p.must(req)
		p.must(then(tenure.Release, req))
	}
	for b.Loop() {
		if _, err := p.Get(context.Background(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
