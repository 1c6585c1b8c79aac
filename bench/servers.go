package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// engine is a running server.
type engine struct {
	name  string
	addr  string   // for Redis
	url   string   // for a PostgreSQL database
	hosts []string // for etcd
	cpu   func() time.Duration
	setup string // its settings, for the report
}

// redis returns the Redis of this run. The first call starts it.
func (b *bench) redis() (*engine, error) {
	if b.redisEngine != nil {
		return b.redisEngine, nil
	}
	err := b.try(func() {
		s := testenv.RedisAlone(b.tb)
		version, _ := s.Ask("INFO", "server")
		b.redisEngine = &engine{
			name: "Redis", addr: s.Addr, cpu: func() time.Duration { return processTime(s.Pid()) },
			setup: "Redis " + after(version, "redis_version:") + " keeps nothing on disk",
		}
	})
	return b.redisEngine, err
}

// postgres returns the PostgreSQL of this run, with its default durability.
func (b *bench) postgres(ctx context.Context) (*engine, error) {
	if b.postgresEngine != nil {
		return b.postgresEngine, nil
	}
	var url string
	err := b.try(func() { url = testenv.NewPostgres(b.tb, "fsync=on").Database(b.tb) })
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	var backend int
	var version, fsync, commit string
	err = conn.QueryRow(
		ctx,
		"SELECT pg_backend_pid(), current_setting('server_version'), current_setting('fsync'), "+
			"current_setting('synchronous_commit')",
	).
		Scan(&backend, &version, &fsync, &commit)
	if err != nil {
		return nil, err
	}
	version, _, _ = strings.Cut(version, " ") // without its packager
	postmaster, err := parentOf(backend)
	cpu := func() (sum time.Duration) {
		for _, pid := range family(postmaster) {
			sum += processTime(pid)
		}
		return sum
	}
	if err != nil { // not on Linux
		cpu = func() time.Duration { return 0 }
	}
	b.postgresEngine = &engine{
		name: "PostgreSQL", url: url, cpu: cpu,
		setup: fmt.Sprintf("PostgreSQL %s with fsync %s and synchronous_commit %s", version, fsync, commit),
	}
	return b.postgresEngine, nil
}

// after returns the rest of the line after a label in a text.
func after(text, label string) string {
	_, rest, _ := strings.Cut(text, label)
	word, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(word)
}

// try runs a function that may call Fatalf or Skipf, and returns that as an
// error. Within a test it ends the test.
func (b *bench) try(start func()) (err error) {
	if b.tb == nil {
		b.tb = &stand{}
	}
	defer func() {
		why := recover()
		if stop, ok := why.(*stopped); ok {
			err = stop.why
		} else if why != nil {
			panic(why)
		}
	}()
	start()
	return nil
}

// end stops the servers.
func (b *bench) end() {
	if s, ok := b.tb.(*stand); ok {
		s.end()
	}
}

// stand implements testing.TB for programs, so that they can use the servers of
// the tests.
type stand struct {
	testing.TB
	cleanups []func()
}

type stopped struct{ why error }

func (s *stand) Helper()                           {}
func (s *stand) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *stand) Fatalf(format string, args ...any) { panic(&stopped{fmt.Errorf(format, args...)}) }
func (s *stand) Skipf(format string, args ...any)  { panic(&stopped{fmt.Errorf(format, args...)}) }

func (s *stand) TempDir() string {
	dir, err := os.MkdirTemp("", "croft-bench-")
	if err != nil {
		s.Fatalf("a folder for a server: %w", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *stand) end() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}
