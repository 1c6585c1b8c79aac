//go:build linux

package hostile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// storePassword is the password that the attackers look for.
const storePassword = "hunter22hunter22"

// otherUser is the machine's user that a command becomes.
const otherUser = "64202"

// environmentScene is a store with a password, and the croft that uses it.
type environmentScene struct {
	*testing.T
	croft, dir, store string
}

// TestEnvironment starts commands with croft that look for the password of its
// store. They look where it may leak: in the environment of processes, and in
// files that are left behind.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	croft := built(t)
	redis := func(t *testing.T) string {
		server := testenv.RedisAlone(t)
		if _, err := server.Ask("CONFIG", "SET", "requirepass", storePassword); err != nil {
			t.Fatal(err)
		}
		return "redis://:" + storePassword + "@" + server.Addr + "/0"
	}
	postgres := func(t *testing.T) string { return testenv.Postgres(t).Login(t, storePassword) }
	run := []string{"run", "job", "--", "sh", "look.sh"}
	worker := []string{"work", "run", "q", "--once", "--", "sh", "look.sh"}
	effect := []string{"work", "dispatch", "--exec", "act=sh look.sh", "--until-empty"}
	for name, attack := range map[string]struct {
		store  func(*testing.T) string
		attack func(*environmentScene)
	}{
		"a command of run, on Redis":      {redis, func(s *environmentScene) { s.look(run) }},
		"a command of run, on PostgreSQL": {postgres, func(s *environmentScene) { s.look(run) }},
		"a command of a worker":           {postgres, func(s *environmentScene) { s.look(worker) }},
		"a command of a dispatcher":       {postgres, func(s *environmentScene) { s.look(effect) }},
		"another user":                    {redis, (*environmentScene).become},
		"files of a killed run":           {redis, func(s *environmentScene) { s.remain(run) }},
		"files of a killed worker":        {postgres, func(s *environmentScene) { s.remain(worker) }},
		"files of a killed dispatcher":    {postgres, func(s *environmentScene) { s.remain(effect) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &environmentScene{T: t, croft: croft, dir: t.TempDir(), store: attack.store(t)}
			if strings.HasPrefix(s.store, "postgres:") { // workers and dispatchers need work
				s.must("work", "add", "first", "x")
				s.must("work", "run", "first", "--once", "--", "croft", "work", "emit", "act", "now")
				s.must("work", "add", "q", "x")
			}
			attack.attack(s)
		})
	}
}

// command is croft with the store in its environment. The same password is in
// the places that an operator allowed.
func (s *environmentScene) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.croft, args...)
	cmd.Dir, cmd.WaitDelay = s.dir, testenv.Patience // its warden may end later
	cmd.Env = append(os.Environ(), "CROFT_STORE="+s.store, "CROFT_RAISE=redis://:"+storePassword+"@127.0.0.1:1/0", "PATH="+filepath.Dir(s.croft)+":"+os.Getenv("PATH"))
	return cmd
}

// must runs croft, which must succeed.
func (s *environmentScene) must(args ...string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), testenv.Patience)
	defer cancel()
	out, err := s.command(ctx, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("croft %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *environmentScene) script(text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "look.sh"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// look has a command read its own environment and that of a process it starts.
// Then it calls croft, which must still reach the store.
func (s *environmentScene) look(args []string) {
	s.script(`tr '\0' '\n' </proc/$$/environ >seen
sh -c 'tr "\0" "\n" </proc/$$/environ; croft ls >/dev/null && echo reached' >>seen
`)
	for _, pass := range []bool{false, true} {
		if pass {
			if args[0] == "work" {
				s.must("work", "add", "q", "x")
				s.must("work", "add", "first", "x")
				s.must("work", "run", "first", "--once", "--", "croft", "work", "emit", "act", "now")
			}
			args = append([]string{args[0], args[1], "--pass-store"}, args[2:]...)
		}
		s.must(args...)
		text, err := os.ReadFile(filepath.Join(s.dir, "seen"))
		if err != nil {
			s.Fatal(err)
		}
		seen := string(text)
		if strings.Count(seen, "\nCROFT_STORE=") != 2 || !strings.HasSuffix(seen, "\nreached\n") {
			s.Errorf("the command saw %q; want the store twice, and that croft reaches it", seen)
		}
		want := 0
		if pass {
			want = 2 // in CROFT_STORE alone
		}
		if found := strings.Count(seen, storePassword); found != want {
			s.Errorf("with --pass-store %v the command found the password %d times, want %d", pass, found, want)
		}
	}
}

// become has a command become another user, who may read neither the lease nor
// the password.
func (s *environmentScene) become() {
	testenv.NeedRoot(s.T)
	if err := os.Chmod(filepath.Dir(s.croft), 0o755); err != nil {
		s.Fatal(err)
	}
	const attack = `cd /
tr '\0' '\n' </proc/$$/environ
cat "$CROFT_STORE_FILE" "${CROFT_LEASE#@}"
croft ls
echo "croft ls: $?"`
	become := []string{"setpriv", "--reuid=" + otherUser, "--regid=" + otherUser, "--clear-groups"}
	other := append(append([]string{"--"}, become...), "sh", "-c", attack)
	said := s.must(append([]string{"run", "job"}, other...)...)
	switch {
	case strings.Contains(said, storePassword):
		s.Errorf("another user has the password: %s", said)
	case strings.Count(said, "Permission denied") != 2,
		!strings.Contains(said, "start it with --pass-store"), !strings.HasSuffix(said, "croft ls: 2\n"):
		s.Errorf("another user sees %s; want two files that it may not read, and an error that names --pass-store", said)
	}
	said = s.must(append([]string{"run", "job", "--pass-store"}, other...)...)
	if !strings.HasSuffix(said, "croft ls: 0\n") {
		s.Errorf("with --pass-store another user sees %s", said)
	}
}

// remain kills croft while its command runs. The file with the password must
// not stay.
func (s *environmentScene) remain(args []string) {
	s.script(`echo "$CROFT_STORE_FILE" >part; mv part file; sleep 1000`)
	cmd := s.command(s.Context(), args...)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	file := ""
	testenv.Eventually(s.T, "the command runs", func() error {
		text, err := os.ReadFile(filepath.Join(s.dir, "file"))
		file = strings.TrimSpace(string(text))
		return err
	})
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), storePassword) {
		s.Fatalf("the attack never got to its moment: %q, %v", text, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	testenv.Eventually(s.T, "the file with the password is gone", func() error {
		if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, fs.ErrNotExist) {
			return errors.New("it is there")
		}
		return nil
	})
}
