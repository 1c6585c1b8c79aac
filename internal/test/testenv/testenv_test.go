package testenv_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

func ask(t *testing.T, s *testenv.RedisServer, args ...string) string {
	t.Helper()
	answer, err := s.Ask(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// Starting a server for each test would take longer than the tests.
func TestTheSharedServerIsOneAndTestsAreApart(t *testing.T) {
	one, two := testenv.Redis(t), testenv.Redis(t)
	if one.Addr != two.Addr || one.Prefix() == two.Prefix() {
		t.Errorf("two tests got %s with %q and %s with %q", one.Addr, one.Prefix(), two.Addr, two.Prefix())
	}
	ask(t, one, "SET", one.Prefix()+"k", "1")
	if got := ask(t, two, "GET", one.Prefix()+"k"); got != "1" {
		t.Errorf("the shared server answers %q", got)
	}
}

// A restarted server has its data from disk, and the same port, so that clients
// reconnect.
func TestAKilledServerComesBack(t *testing.T) {
	s := testenv.RedisAlone(t, "--appendonly", "yes", "--appendfsync", "always")
	ask(t, s, "SET", "k", "kept")
	s.Kill()
	if _, err := s.Ask("PING"); err == nil {
		t.Fatal("a killed server answers")
	}
	s.Restart(t)
	if got := ask(t, s, "GET", "k"); got != "kept" {
		t.Errorf("after a restart: %q", got)
	}
}

// The replica gets the primary's writes, and takes writes when promoted.
func TestAPairReplicates(t *testing.T) {
	primary, replica := testenv.RedisPair(t)
	ask(t, primary, "SET", "k", "1")
	testenv.Eventually(t, "the replica has it", func() error {
		if got := ask(t, replica, "GET", "k"); got != "1" {
			return errors.New(got)
		}
		return nil
	})
	primary.Kill()
	replica.Promote(t)
	ask(t, replica, "SET", "k", "2")
}

// A server that does not start must be able to say why.
func TestOutputIsKept(t *testing.T) {
	testenv.Program(t, "sh", "dash")
	p := testenv.Start(t, "sh", func() *exec.Cmd { return exec.Command("sh", "-c", "echo here I am; exec sleep 600") }, func() error { return nil })
	testenv.Eventually(t, "the process is heard", func() error {
		if !strings.Contains(p.Output(), "here I am") {
			return errors.New(p.Output())
		}
		return nil
	})
}

// If a server cannot have its port, the server that has it must not be taken
// for it.
func TestAPostgresServerIsItsOwn(t *testing.T) {
	one, two := testenv.NewPostgres(t), testenv.NewPostgres(t)
	for _, s := range []*testenv.PostgresServer{one, two} {
		s.Query(t, "postgres", "CREATE TABLE mine ()")
		s.Kill(t)
		s.Start(t)
		if got := s.Query(t, "postgres", "SELECT count(*) FROM pg_tables WHERE tablename = 'mine'"); got != "1" {
			t.Errorf("after a crash: %s", got)
		}
	}
	if one.Addr() == two.Addr() {
		t.Errorf("two servers at %s", one.Addr())
	}
	standby := one.Standby(t)
	if got := standby.Query(t, "postgres", "SELECT pg_is_in_recovery()"); got != "t" {
		t.Errorf("a standby says of itself: %s", got)
	}
}
