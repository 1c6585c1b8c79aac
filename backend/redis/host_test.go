package redis

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/operator"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestATakeoverRaisesTheFenceBehindAPassword checks that the operator's store
// opens the guard over its own connection, because the record names the guard
// without its password.
func TestATakeoverRaisesTheFenceBehindAPassword(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	if _, err := server.Ask("CONFIG", "SET", "requirepass", "hunter2"); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), "redis://:hunter2@"+server.Addr+"/0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	g, err := guard.Open(t.Context(), "redis://:hunter2@"+server.Addr+"/0#report")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	operator.RaisesTheFence(t, st, g)
}

// TestAnAllowedPlaceIsEnteredByItsOwnUser checks that the operator's own user
// opens the guard. The record names the holder's user, who may not even log in
// any more.
func TestAnAllowedPlaceIsEnteredByItsOwnUser(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	ask := func(args ...string) {
		t.Helper()
		if _, err := server.Ask(args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"bob", "ops"} {
		ask("ACL", "SETUSER", user, "on", ">of-"+user, "~*", "&*", "+@all")
	}
	g, err := guard.Open(t.Context(), "redis://bob:of-bob@"+server.Addr+"/0?read_timeout=1m#report")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Raise(t.Context(), stamp(10, 1, 0)); err != nil {
		t.Fatal(err)
	}
	ask("ACL", "SETUSER", "bob", "off")
	allowed, err := guard.Allow("redis://ops:of-ops@" + server.Addr + "/0?read_timeout=2m")
	if err != nil {
		t.Fatal(err)
	}
	found, err := allowed.Open(t.Context(), g.Target())
	if err != nil {
		t.Fatalf("%s: %v", g.Target(), err)
	}
	defer found.Close()
	if mark, err := found.Raise(t.Context(), stamp(20, 2, 0)); err != nil || mark.Token != 20 {
		t.Errorf("%+v, %v", mark, err)
	}
}

// TestAStoreOpensGuardsInItsOwnDatabaseAlone checks which targets a store takes
// for its own.
func TestAStoreOpensGuardsInItsOwnDatabaseAlone(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	st := New(dial(t, server), &Options{Prefix: server.Prefix()})
	defer st.Close()
	for target, own := range map[string]bool{
		"redis://" + server.Addr + "/0#key":                  true,
		"redis://" + server.Addr + "#key":                    true,
		"redis://ann@" + server.Addr + "/0#key":              true,
		"redis://" + server.Addr + "/1#key":                  false,
		"redis://" + server.Addr + "/x#key":                  false,
		"redis://" + server.Addr + "/0":                      false,
		"rediss://" + server.Addr + "/0#key":                 false,
		"redis://" + server.Addr + "?cluster=true#key":       false,
		"redis://attacker.example:6379/0#key":                false,
		"redis://" + server.Addr + "@attacker.example/0#key": false,
		"redis:///0#key":                                     false,
		"/tmp/report":                                        false,
		"\x7f://":                                            false,
	} {
		g, err := st.Guard(t.Context(), target)
		if own != (err == nil) || !own && !errors.Is(err, guard.ErrElsewhere) {
			t.Errorf("%s: %v, own %v", target, err, own)
		}
		if err == nil {
			_ = g.Close()
		}
	}
}
