package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// levels returns the findings of a store by name. It checks that each finding
// which is not OK has advice.
func levels(t *testing.T, st *Store) map[string]store.Level {
	t.Helper()
	findings, err := st.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]store.Level{}
	for _, f := range findings {
		got[f.Check] = f.Level
		if f.Seen == "" || (f.Level != store.OK) != (f.Advice != "") {
			t.Errorf("a finding without what was seen, or with the wrong advice: %+v", f)
		}
	}
	return got
}

func expect(t *testing.T, got, want map[string]store.Level) {
	t.Helper()
	for check, level := range want {
		if got[check] != level {
			t.Errorf("%s is %q, want %q", check, got[check], level)
		}
	}
}

// TestTheDoctorNamesWhatWeakensALease changes settings of a server, and looks
// at the findings.
func TestTheDoctorNamesWhatWeakensALease(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t, "--appendonly", "yes", "--appendfsync", "always")
	set := func(name, value string) {
		t.Helper()
		if _, err := server.Ask("CONFIG", "SET", name, value); err != nil {
			t.Fatal(err)
		}
	}
	st := New(dial(t, server), nil)
	if a := one(t.Context(), st, claim("doctor/key", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	for check, level := range levels(t, st) {
		if level != store.OK {
			t.Errorf("a good server: %s is %s", check, level)
		}
	}
	set("appendfsync", "everysec")
	set("maxmemory-policy", "allkeys-lru")
	expect(t, levels(t, st), map[string]store.Level{"persistence": store.Warn, "maxmemory-policy": store.Warn})
	set("appendonly", "no")
	set("maxmemory", "100mb")
	expect(t, levels(t, st), map[string]store.Level{"persistence": store.Warn, "maxmemory-policy": store.Bad, "memory": store.OK})
	waiting := New(dial(t, server), &Options{WaitReplicas: 1})
	expect(t, levels(t, waiting), map[string]store.Level{"replicas": store.Bad})
	if _, err := server.Ask("HSET", st.names.record("doctor/key"), "r", "nonsense"); err != nil {
		t.Fatal(err)
	}
	expect(t, levels(t, st), map[string]store.Level{"keys": store.Bad})
}

// TestTheDoctorKnowsReplicas checks that a primary with a replica is best
// effort, and that a replica cannot be a store.
func TestTheDoctorKnowsReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.RedisPair(t)
	expect(t, levels(t, New(dial(t, primary), nil)), map[string]store.Level{"tier": store.Warn, "replicas": store.Warn})
	expect(t, levels(t, New(dial(t, primary), &Options{WaitReplicas: 1})), map[string]store.Level{"tier": store.Warn, "replicas": store.OK})
	expect(t, levels(t, New(dial(t, replica), nil)), map[string]store.Level{"tier": store.Bad})
}

// TestTheDoctorOfAServerThatIsNotThere checks the errors for a killed server
// and for a cancelled call.
func TestTheDoctorOfAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	st := New(dial(t, server), nil)
	server.Kill()
	if _, err := st.Examine(t.Context()); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a killed server: %v, want unknown", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Examine(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled examination: %v", err)
	}
}
