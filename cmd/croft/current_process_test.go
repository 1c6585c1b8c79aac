//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
)

// onEveryEngine runs a test with real processes on the default store and on the
// engines. S3 stands for all stores that cannot notify and are polled.
func onEveryEngine(t *testing.T, test func(t *testing.T, s *station)) {
	t.Parallel()
	for _, name := range []string{"dir", "sqlite", "postgres", "redis", "etcd", "s3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			if name != "dir" {
				for variable, value := range engines[name](t) {
					s.env = append(s.env, variable+"="+value)
				}
			}
			test(t, s)
		})
	}
}

// run runs a croft without the race detector to its end, and returns its exit
// code and its output.
func (s *station) run(args ...string) (code int, out string) {
	s.t.Helper()
	dir := plainCroft()
	if dir == "" {
		dir = filepath.Join(s.dir, "bin")
	}
	c := exec.CommandContext(s.t.Context(), filepath.Join(dir, "croft"), args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "SCRIPT_HOME="+s.dir, "CROFT_STORE="+filepath.Join(s.dir, "store"))
	c.Env = append(c.Env, s.env...)
	printed, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(printed)
}

// must runs a croft and checks its exit code.
func (s *station) must(want int, args ...string) string {
	s.t.Helper()
	code, out := s.run(args...)
	if code != want {
		s.t.Fatalf("croft %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, out)
	}
	return out
}

// acquired takes a lease by hand, and returns its stamp.
func (s *station) acquired(key string, args ...string) fence.Stamp {
	s.t.Helper()
	out := s.must(0, append([]string{"acquire", key, "--json"}, args...)...)
	var v struct{ Stamp string }
	for line := range strings.Lines(out) { // messages for people may precede it
		if json.Unmarshal([]byte(line), &v) == nil && v.Stamp != "" {
			stamp, err := fence.ParseStamp(v.Stamp)
			if err != nil {
				s.t.Fatal(err)
			}
			return stamp
		}
	}
	s.t.Fatalf("no stamp in %s", out)
	return fence.Stamp{}
}

// file writes a file in the station's folder.
func (s *station) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// TestAReplacedOwnerCannotWrite: a replaced owner cannot write, even before its
// successor has written anything.
func TestAReplacedOwnerCannotWrite(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, s *station) {
		s.expired(t)
		s.takenOver(t)
	})
}

// takenOver checks that after a takeover neither the proxy nor croft write
// admits the replaced owner.
func (s *station) takenOver(t *testing.T) {
	var writes atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		writes.Add(1)
	}))
	defer service.Close()
	proxy := s.proxy("gate", service.URL, "--leases", "", "--marks", filepath.Join(s.dir, "{resource}"))
	out, old, recent := filepath.Join(s.dir, "taken"), s.file("old", "old"), s.file("new", "new")

	stale := s.acquired("job", "--ttl", "10m", "--owner", "ann@one")
	if err := s.put(proxy.url, stale, "1"); err != nil {
		t.Fatal(err)
	}
	s.must(0, "write", out, "--from", old, "--stamp", stale.String())
	invented := stale
	invented.Token++
	if err := s.put(proxy.url, invented, "x"); !refusedAs(err, "not_owned") {
		t.Errorf("an invented stamp at the proxy: %v", err)
	}
	s.must(12, "write", out, "--from", recent, "--stamp", invented.String())

	s.must(0, "takeover", "job", "--note", "stuck", "--owner", "op@desk")
	s.until("the proxy refuses the replaced owner", func() bool { return refusedAs(s.put(proxy.url, stale, "2"), "not_owned") })
	seen := writes.Load()
	err := s.put(proxy.url, stale, "3")
	var problem *httpfence.ProblemError
	if !errors.As(err, &problem) || problem.Code != "not_owned" || problem.Owner != "op@desk" || problem.Sent || writes.Load() != seen {
		t.Errorf("the replaced owner at the proxy: %v", err)
	}
	if said := s.must(12, "write", out, "--from", recent, "--stamp", stale.String()); !strings.Contains(said, "taken over by hand by op@desk (stuck)") {
		t.Errorf("croft write says %s", said)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "old" {
		t.Errorf("the file has %q, %v", text, err)
	}
	mark := s.must(0, "guard", "show", out, "--json")
	if !strings.Contains(mark, `"grant":"`+string(stale.Grant)) {
		t.Errorf("the mark has moved: %s", mark)
	}
}

// TestAMarkThatWasRaisedByHandClosesNoResource: the first write through a proxy
// does not wait for the settle time, because nothing was sent before.
func TestAMarkThatWasRaisedByHandClosesNoResource(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, s *station) {
		service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer service.Close()
		marks := filepath.Join(s.dir, "mark-{resource}")
		stamp := s.acquired("job", "--ttl", "10m", "--owner", "ann@one")
		mark := strings.ReplaceAll(marks, "{resource}", url.PathEscape("r/1"))
		s.must(0, "guard", "raise", mark, "--stamp", stamp.String())
		proxy := s.proxy("gate", service.URL, "--leases", "", "--marks", marks, "--settle", "24h")
		if err := s.put(proxy.url, stamp, "1"); err != nil {
			t.Errorf("the first write after a raise: %v", err)
		}
	})
}

func refusedAs(err error, code string) bool {
	var problem *httpfence.ProblemError
	return errors.As(err, &problem) && problem.Code == code
}

// expired checks the same after a lease has run out and another owner holds the
// key.
func (s *station) expired(t *testing.T) {
	out, old, recent := filepath.Join(s.dir, "expired"), s.file("old", "old"), s.file("new", "new")
	stale := s.acquired("expiring", "--ttl", "3s")
	newer := s.acquired("expiring", "--ttl", "10m", "--wait", "1m", "--owner", "bob@two")
	said := s.must(12, "write", out, "--from", old, "--stamp", stale.String(), "--json")
	if !strings.Contains(said, `"code":"not_owned"`) || !strings.Contains(said, "bob@two") {
		t.Errorf("croft write says %s", said)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
	s.must(0, "write", out, "--from", recent, "--stamp", newer.String())
	s.must(13, "write", out, "--from", old, "--stamp", stale.String())
}

// TestAReassignedItemsOwnerCannotWrite: the ledger tells who owns the item now.
func TestAReassignedItemsOwnerCannotWrite(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			for variable, value := range engines[name](t) {
				s.env = append(s.env, variable+"="+value)
			}
			out, content := filepath.Join(s.dir, "out"), s.file("content", "x")
			id := strings.TrimSpace(s.must(0, "work", "add", "queue", "payload"))
			var claimed struct{ Stamp string }
			if err := json.Unmarshal([]byte(s.must(0, "work", "claim", "queue", "--json")), &claimed); err != nil {
				t.Fatal(err)
			}
			s.must(0, "write", out, "--from", content, "--stamp", claimed.Stamp)
			s.must(0, "work", "reassign", id, "--to", "bob@two", "--note", "stuck")
			said := s.must(12, "write", out, "--from", content, "--stamp", claimed.Stamp)
			if !strings.Contains(said, "not owned") {
				t.Errorf("croft write says %s", said)
			}
		})
	}
}
