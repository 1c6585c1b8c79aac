// Command gotest runs "go test" for people: one line for each package as it
// ends, and at the end what went wrong. Its arguments are those of go test:
//
//	go run ./tools/gotest -race -count=1 work
//
// The end names every test that failed, with its output and the command that
// runs it alone; every test that was skipped, with its reason; and the packages
// that took longest. The whole output, as go test -json writes it, is kept in
// .tools/tests.json.
//
// With REPORT=FILE in the environment, gotest writes the failures to that file
// instead. tools/stages shows it when all stages are over.
//
// One goroutine reads the events of go test. Another prints a heartbeat. A
// mutex lets only one of them use the run at a time.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintln(os.Stderr, "usage: gotest ARGUMENTS OF GO TEST, for example: gotest -race work")
		os.Exit(2)
	}
	log := filepath.Join(".tools", "tests.json")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		fail(err)
	}
	keep, err := os.Create(log)
	if err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	modules, err := exec.CommandContext(ctx, "go", "list", "-m").Output()
	if err != nil {
		fail(fmt.Errorf("go list -m: %w", err))
	}
	r := newRun(outermost(string(modules)), args)
	err = r.goTest(ctx, keep, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	if closed := keep.Close(); closed != nil {
		fail(closed)
	}

	r.slowest(os.Stdout, 8)
	r.skips(os.Stdout)
	var failures strings.Builder
	r.failures(&failures)
	if err != nil && failures.Len() == 0 && !interrupted {
		fmt.Fprintf(&failures, "go test: %v, and no test failed: look into %s\n", err, log)
	}
	if file := os.Getenv("REPORT"); file == "" {
		fmt.Print(failures.String())
	} else if err := os.WriteFile(file, []byte(failures.String()), 0o644); err != nil {
		fail(err)
	}
	fmt.Println(r.total(time.Now()))
	if interrupted {
		os.Exit(130)
	}
	if err != nil {
		os.Exit(1)
	}
}

// outermost is the module at the top of a workspace: all others lie below it.
func outermost(modules string) string {
	return slices.MinFunc(strings.Fields(modules), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gotest:", err)
	os.Exit(1)
}

// heartbeat is the time between two lines that name the running tests.
const heartbeat = time.Minute

// goTest runs go test and follows it. It copies the events to keep, and writes
// lines for people to out at once.
func (r *run) goTest(ctx context.Context, keep, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, r.args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var mu sync.Mutex // guards r and out between events and heartbeat
	over := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case now := <-tick.C:
				mu.Lock()
				r.waiting(out, now)
				mu.Unlock()
			}
		}
	})
	read := r.follow(io.TeeReader(events, keep), out, &mu)
	_, _ = io.Copy(io.Discard, events) // so that go test can end
	close(over)
	beat.Wait()
	return errors.Join(read, cmd.Wait())
}

// follow reads events to their end.
func (r *run) follow(events io.Reader, out io.Writer, mu *sync.Mutex) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			mu.Lock()
			r.line(line, out)
			mu.Unlock()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line handles one line of the stream. A line that is not an event comes from
// the go command itself, and is passed on.
func (r *run) line(line []byte, out io.Writer) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		_, _ = out.Write(line)
		return
	}
	r.event(e, out)
}
