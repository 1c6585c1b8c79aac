//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// frozenWrite starts a croft write and stops the process while it reads its
// content. thaw lets it go on to its end, and returns its exit code and output.
func (s *station) frozenWrite(content string, args ...string) (thaw func() (int, string)) {
	s.t.Helper()
	c := s.command(append([]string{"write"}, args...)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	in, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Process.Kill() })
	// A pipe holds less than this, so croft has begun to read.
	if _, err := io.WriteString(in, strings.Repeat(" ", 1<<20)); err != nil {
		s.t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	return func() (int, string) {
		s.t.Helper()
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			s.t.Fatal(err)
		}
		if _, err := io.WriteString(in, content); err != nil {
			s.t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			s.t.Fatal(err)
		}
		return exitCode(s.t, c, &out), out.String()
	}
}

// TestAnOwnerThatSleptPastItsLeaseIsRefusedOrObserved: both write to the same
// file after their successor has. The write with --observe is made, and is on
// record. The mark does not move for either.
func TestAnOwnerThatSleptPastItsLeaseIsRefusedOrObserved(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	out, recent := filepath.Join(s.dir, "out"), s.file("new", "of the successor")
	// Both writes must begin before the lease ends, also on a busy machine.
	sleeper := s.acquired("jobs/nightly", "--ttl", "15s", "--owner", "ann@one")
	strict := s.frozenWrite("of the sleeper", out, "--stamp", sleeper.String())
	observed := s.frozenWrite("of the sleeper", out, "--stamp", sleeper.String(), "--observe", "--json")
	newer := s.acquired("jobs/nightly", "--ttl", "10m", "--wait", "1m", "--owner", "bob@two")
	s.must(0, "write", out, "--from", recent, "--stamp", newer.String())

	if code, said := strict(); code != 13 || !strings.Contains(said, "newer owner") {
		t.Errorf("without --observe: exit code %d\n%s", code, said)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "of the successor" {
		t.Errorf("without --observe the file has %q, %v", text, err)
	}
	code, said := observed()
	if code != 0 || !strings.Contains(said, "OBSERVED, and written all the same") || !strings.Contains(said, "(ann@one)") {
		t.Errorf("with --observe: exit code %d\n%s", code, said)
	}
	if !strings.Contains(said, `"refusal":"stale"`) {
		t.Errorf("with --observe and --json: %s", said)
	}
	if text, err := os.ReadFile(out); err != nil || strings.TrimSpace(string(text)) != "of the sleeper" {
		t.Errorf("with --observe the file has %q, %v", text, err)
	}
	var mark fence.Mark
	if err := json.Unmarshal([]byte(s.must(0, "guard", "show", out, "--json")), &mark); err != nil || mark != newer.Mark() {
		t.Errorf("the mark is %+v, %v; want %+v", mark, err, newer)
	}
	// An owner that sleeps again is refused by the same mark.
	s.must(13, "write", out, "--from", recent, "--stamp", sleeper.String())

	var v struct{ Refused, Observed int }
	if err := json.Unmarshal([]byte(s.must(0, "inventory", "jobs/", "--json")), &v); err != nil || v.Refused != 2 || v.Observed != 1 {
		t.Errorf("the inventory has %+v, %v; want 2 refused and 1 observed", v, err)
	}
	listed := s.must(0, "inventory", "--refusals", "jobs/")
	if !strings.Contains(listed, "write: stale, let in all the same") || strings.Count(listed, "ann@one") < 2 {
		t.Errorf("inventory --refusals: %s", listed)
	}
}

// TestAProxyObservesAnOwnerThatSleptPastItsLease: the service gets its write,
// the store a note. A proxy that does not observe refuses the same write.
func TestAProxyObservesAnOwnerThatSleptPastItsLease(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	var mu sync.Mutex
	var got []string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(body))
	}))
	defer service.Close()
	sleeper := s.acquired("jobs/nightly", "--ttl", "3s", "--owner", "ann@one")
	newer := s.acquired("jobs/nightly", "--ttl", "10m", "--wait", "1m", "--owner", "bob@two")
	marks := filepath.Join(s.dir, "{resource}")
	proxy := s.proxy("trial", service.URL, "--leases", "", "--marks", marks, "--observe")
	for i, stamp := range []fence.Stamp{sleeper, newer, sleeper} {
		if err := s.put(proxy.url, stamp, strconv.Itoa(i)); err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	mu.Lock()
	if want := []string{"0", "1", "2"}; !slices.Equal(got, want) {
		t.Errorf("the service got %v, want %v", got, want)
	}
	mu.Unlock()
	s.until("the notes", func() bool {
		var v struct{ Refused, Observed int }
		out := s.must(0, "inventory", "jobs/", "--json")
		return json.Unmarshal([]byte(out), &v) == nil && v.Observed == 2 && v.Refused == 0
	})
	if err := proxy.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Wait(); err != nil {
		t.Errorf("the end of the trial: %v", err)
	}
	strict := s.proxy("strict", service.URL, "--leases", "", "--marks", marks)
	if err := s.put(strict.url, sleeper, "3"); !refusedAs(err, "not_owned") && !refusedAs(err, "stale") {
		t.Errorf("without --observe: %v", err)
	}
}

// TestInventoryShowsDecisionsWithoutTheStore: the store of the writers' leases
// is away, so the proxy admits by the mark alone. It notes that when the store
// is back.
func TestInventoryShowsDecisionsWithoutTheStore(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	leases := filepath.Join(s.dir, "leases")
	known := s.acquired("jobs/nightly", "--ttl", "10m", "--owner", "ann@one", "--store", leases)
	open := s.proxy("open", service.URL, "--leases", leases, "--when-unsure", "admit", "--marks", filepath.Join(s.dir, "open-{resource}"))
	if err := os.Rename(leases, leases+".away"); err != nil {
		t.Fatal(err)
	}
	s.file("leases", "this is no store")
	if err := s.put(open.url, known, "x"); err != nil {
		t.Errorf("with --when-unsure admit: %v", err)
	}
	// The proxy notes it in the store of the leases, once that answers again.
	if err := os.Remove(leases); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(leases+".away", leases); err != nil {
		t.Fatal(err)
	}
	s.until("the note", func() bool {
		return strings.Contains(s.must(0, "inventory", "jobs/", "--json", "--store", leases),
			`"observed":0,"unsure_admitted":1,"unsure_refused":0`)
	})
	if said := s.must(0, "inventory", "jobs/", "--store", leases); !strings.Contains(said, "1, 1 let in") {
		t.Errorf("the inventory is %s", said)
	}
	listed := s.must(0, "inventory", "--refusals", "jobs/", "--store", leases)
	if !strings.Contains(listed, "ann@one") || !strings.Contains(listed, "write: the store could not be asked, let in all the same, at http:r/1") {
		t.Errorf("inventory --refusals: %s", listed)
	}
}
