package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/tenure"
)

// used returns the CPU time of this process, and of the server process behind
// the pool's one connection.
func used(b *testing.B, pid int) (client, server time.Duration) {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Skip(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), time.Duration(ns)
}

// BenchmarkPair measures one acquire and its release. It compares them with the
// least work that takes and frees a row safely.
func BenchmarkPair(b *testing.B) {
	shared(b)
	p := pool(b, server.url+"&pool_max_conns=1")
	defer p.Close()
	ctx := context.Background()
	var pid int
	if err := p.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		b.Fatal(err)
	}
	measured := func(b *testing.B, pair func()) {
		for range 50 {
			pair()
		}
		client, server := used(b, pid)
		b.ReportAllocs()
		for b.Loop() {
			pair()
		}
		c, s := used(b, pid)
		b.ReportMetric(float64((c-client).Nanoseconds())/1e3/float64(b.N), "µs-client/op")
		b.ReportMetric(float64((s-server).Nanoseconds())/1e3/float64(b.N), "µs-server/op")
	}
	b.Run("croft", func(b *testing.B) {
		st := postgres.New(p, &postgres.Options{Schema: "bench"})
		defer st.Close()
		measured(b, func() {
			mine := claim("bench/pair", "ann")
			for _, req := range []tenure.Request{mine, then(tenure.Release, mine)} {
				if a := one(ctx, st, req); a.Err != nil {
					b.Fatal(a.Err)
				}
			}
		})
	})
	b.Run("croft, 64 together", func(b *testing.B) { // figures are for 64 pairs
		st := postgres.New(p, &postgres.Options{Schema: "bench"})
		defer st.Close()
		measured(b, func() {
			var claims, releases []tenure.Request
			for n := range 64 {
				mine := claim(fmt.Sprintf("bench/pair/%d", n), "ann")
				claims, releases = append(claims, mine), append(releases, then(tenure.Release, mine))
			}
			for _, requests := range [][]tenure.Request{claims, releases} {
				for _, a := range st.Apply(ctx, requests) {
					if a.Err != nil {
						b.Fatal(a.Err)
					}
				}
			}
		})
	})
	b.Run("floor", func(b *testing.B) {
		if _, err := p.Exec(ctx, `CREATE TABLE IF NOT EXISTS floor (key text COLLATE "C" PRIMARY KEY, token bigint NOT NULL, holder text NOT NULL, deadline timestamptz NOT NULL) WITH (fillfactor = 70)`); err != nil {
			b.Fatal(err)
		}
		measured(b, func() {
			var token int64
			holder := string(tenure.NewSecret())
			if err := p.QueryRow(ctx, `INSERT INTO floor AS f VALUES ($1, 1, $2, clock_timestamp() + $3 * interval '1 ms')
				ON CONFLICT (key) DO UPDATE SET token = f.token + 1, holder = excluded.holder, deadline = excluded.deadline WHERE f.deadline < clock_timestamp() RETURNING token`,
				"bench/pair", holder, 60000).Scan(&token); err != nil {
				b.Fatal(err)
			}
			if _, err := p.Exec(ctx, `UPDATE floor SET deadline = '-infinity' WHERE key = $1 AND holder = $2`, "bench/pair", holder); err != nil {
				b.Fatal(err)
			}
		})
	})
}
