//go:build linux

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// remembered returns the refusals that a store remembers, by their owners.
func (s *station) remembered(args ...string) map[string]string {
	s.t.Helper()
	codes := map[string]string{}
	for line := range strings.Lines(s.must(0, append([]string{"inventory", "--refusals", "--json"}, args...)...)) {
		var r struct{ Owner, Code string }
		if json.Unmarshal([]byte(line), &r) == nil && r.Code != "" { // not a message for people
			codes[r.Owner] = r.Code
		}
	}
	return codes
}

// TestTheWritersLeasesMayBeInAnotherStore: with --leases the proxy asks the
// store with the writers' leases, and notes refusals there. It believes no
// grant of its own store.
func TestTheWritersLeasesMayBeInAnotherStore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dir", "sqlite", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			other := filepath.Join(s.dir, "other")
			if name != "dir" {
				other = engines[name](t)["CROFT_STORE"]
			}
			service, upstream := newBehind(t)
			proxy := s.proxy("gate", upstream, "--leases", other)
			stale := s.acquired("job", "--ttl", "10m", "--owner", "ann@one", "--store", other)
			if err := s.put(proxy.url, stale, "1"); err != nil {
				t.Fatal(err)
			}
			foreign := s.acquired("job", "--ttl", "10m", "--owner", "eve@three")
			if err := s.put(proxy.url, foreign, "foreign"); !refusedAs(err, "not_owned") {
				t.Errorf("a grant of the proxy's own store: %v", err)
			}
			s.must(0, "takeover", "job", "--note", "stuck", "--owner", "op@desk", "--store", other)
			s.until("the proxy refuses the replaced owner", func() bool {
				return refusedAs(s.put(proxy.url, stale, "2"), "not_owned")
			})
			seen := service.seen()
			if err := s.put(proxy.url, stale, "late"); !refusedAs(err, "not_owned") {
				t.Errorf("the replaced owner: %v", err)
			}
			if service.seen() != seen || strings.Contains(seen, "foreign") {
				t.Errorf("the service saw %q", service.seen())
			}
			s.until("the refusal is in the store of the lease", func() bool {
				return s.remembered("--store", other)["ann@one"] == "not_owned"
			})
			if own := s.remembered(); len(own) != 0 {
				t.Errorf("the proxy's own store remembers %v", own)
			}
		})
	}
}

// TestTheDefaultStoreTellsWhoIsCurrent: nothing names a store. Then a grant
// that the default store does not know may be from another store, so croft
// write leaves it to the mark. The proxy has no such doubt: it is told its
// store.
func TestTheDefaultStoreTellsWhoIsCurrent(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.env = append(s.env, "CROFT_STORE=", "SCRIPT_HOME="+filepath.Join(s.dir, "home"))
	out, content := filepath.Join(s.dir, "out"), s.file("content", "x")
	// There is no store yet.
	s.must(0, "write", out+".none", "--from", content, "--stamp", olderOwner.String())
	if strings.Contains(s.must(14, "write", out+".none", "--from", content, "--stamp", olderOwner.String(),
		"--when-unsure", "refuse"), "not owned") {
		t.Error("a store that does not exist has refused a grant")
	}
	stale := s.acquired("job", "--ttl", "10m", "--owner", "ann@one")
	service, upstream := newBehind(t)
	proxy := s.proxy("gate", upstream, "--leases", "", "--marks", filepath.Join(s.dir, "{resource}"))
	if err := s.put(proxy.url, stale, "1"); err != nil {
		t.Fatal(err)
	}
	s.must(0, "write", out, "--from", content, "--stamp", stale.String())
	unknown := fence.Stamp{Key: "elsewhere", Token: stale.Token, Grant: olderOwner.Grant}
	s.must(0, "write", out+".unknown", "--from", content, "--stamp", unknown.String())
	if err := s.put(strings.TrimSuffix(proxy.url, "1")+"2", unknown, "unknown"); !refusedAs(err, "not_owned") {
		t.Errorf("a grant that the proxy's store does not know: %v", err)
	}
	s.must(0, "takeover", "job", "--note", "stuck", "--owner", "op@desk")
	s.must(12, "write", out, "--from", content, "--stamp", stale.String())
	s.until("the proxy refuses the replaced owner", func() bool {
		return refusedAs(s.put(proxy.url, stale, "2"), "not_owned")
	})
	if strings.Contains(service.seen(), "unknown") {
		t.Errorf("the service saw %q", service.seen())
	}
}

// TestAReassignedItemsOwnerIsRefusedAtTheProxy: the proxy looks up an item's
// stamp in the ledger, in the place of its store, of --leases, or of the
// default store.
func TestAReassignedItemsOwnerIsRefusedAtTheProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, engine string }{
		{"sqlite", "sqlite"}, {"postgres", "postgres"}, {"the default store", ""}, {"leases in another store", "sqlite"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			ledger := []string{}
			leases := ""
			switch c.name {
			case "the default store":
				s.env = append(s.env, "CROFT_STORE=", "SCRIPT_HOME="+filepath.Join(s.dir, "home"))
			case "leases in another store":
				leases = engines[c.engine](t)["CROFT_STORE"]
				ledger = []string{"--store", leases}
			default:
				for variable, value := range engines[c.engine](t) {
					s.env = append(s.env, variable+"="+value)
				}
			}
			work := func(want int, args ...string) string {
				t.Helper()
				return s.must(want, append(append([]string{"work"}, args...), ledger...)...)
			}
			_, upstream := newBehind(t)
			// The proxy starts before there is a ledger.
			proxy := s.proxy("gate", upstream, "--leases", leases, "--marks", filepath.Join(s.dir, "{resource}"))
			id := lastLine(work(0, "add", "queue", "payload"))
			var claimed struct{ Stamp string }
			if err := json.Unmarshal([]byte(lastLine(work(0, "claim", "queue", "--json"))), &claimed); err != nil {
				t.Fatal(err)
			}
			stamp, err := fence.ParseStamp(claimed.Stamp)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.put(proxy.url, stamp, "1"); err != nil {
				t.Fatal(err)
			}
			invented := stamp
			invented.Token++
			if err := s.put(proxy.url, invented, "x"); !refusedAs(err, "not_owned") {
				t.Errorf("an invented stamp: %v", err)
			}
			work(0, "reassign", id, "--to", "bob@two", "--note", "stuck")
			s.until("the proxy refuses the replaced owner", func() bool {
				return refusedAs(s.put(proxy.url, stamp, "2"), "not_owned")
			})
			if err := s.put(proxy.url, stamp, "3"); !refusedAs(err, "not_owned") {
				t.Errorf("the replaced owner: %v", err)
			}
		})
	}
}

// lastLine returns the last line of an output. Messages for people may precede
// it.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
