//go:build linux

package hostile

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// effectScene is a ledger, and the croft that works on it.
type effectScene struct {
	*testing.T
	croft, dir string
}

// TestEffects attacks from a command under "croft work". The victims are its
// worker, its dispatcher, and the services that the dispatcher talks to.
func TestEffects(t *testing.T) {
	t.Parallel()
	croft := built(t)
	for name, attack := range map[string]func(*effectScene){
		"a pipeline acts after its time": func(s *effectScene) { s.outlive(`{ echo up >&3; sleep 1000; } 3>"$LIVING" | cat`) },
		"a daemon acts after its time": func(s *effectScene) {
			s.outlive(`(setsid sh -c 'exec 3>"$LIVING"; echo up >&3; exec sleep 1000' &) ; sleep 1000`)
		},
		"a daemon acts after its command": func(s *effectScene) {
			s.outlive(`(setsid sh -c 'exec 3>"$LIVING"; echo up >&3; : >up; exec sleep 1000' &) ; until [ -e up ]; do sleep 0.05; done; exit 1`)
		},
		"a pipe for effects":               func(s *effectScene) { s.effects(`rm "$CROFT_EFFECTS"; mkfifo "$CROFT_EFFECTS"`) },
		"a link for effects":               func(s *effectScene) { s.effects(`ln -sf /dev/zero "$CROFT_EFFECTS"`) },
		"a folder for effects":             func(s *effectScene) { s.effects(`rm "$CROFT_EFFECTS"; mkdir "$CROFT_EFFECTS"`) },
		"a huge file for effects":          func(s *effectScene) { s.effects(`truncate -s 400M "$CROFT_EFFECTS"`) },
		"effects without end":              func(s *effectScene) { s.effects(`yes '{"name":"x"}' | head -c 40000000 >"$CROFT_EFFECTS"`) },
		"a command reads the secret":       (*effectScene).secret,
		"one receiver signs for the other": (*effectScene).forge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(&effectScene{T: t, croft: croft, dir: t.TempDir()})
		})
	}
}

// run runs croft within the memory of a small worker.
func (s *effectScene) run(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), testenv.Patience)
	defer cancel()
	// The limit is croft's own memory. The recorded peak would not do: it
	// includes the peak of the parent process.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -d 500000; exec "$@"`, "sh", s.croft}, args...)...)
	cmd.Dir, cmd.WaitDelay = s.dir, testenv.Patience // its warden may end later
	cmd.Env = append(append(os.Environ(), "CROFT_STORE=sqlite://"+filepath.Join(s.dir, "ledger.db"), "PATH="+filepath.Dir(s.croft)+":"+os.Getenv("PATH")), env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		s.Fatalf("croft %q hangs: %s", args, out)
	}
	if strings.Contains(string(out), "out of memory") || strings.Contains(string(out), "cannot allocate memory") {
		s.Errorf("croft %q takes too much memory: %.200s", args, out)
	}
	return string(out), err
}

// must runs croft, which must succeed.
func (s *effectScene) must(env []string, args ...string) string {
	s.Helper()
	out, err := s.run(env, args...)
	if err != nil {
		s.Fatalf("croft %q: %v: %s", args, err, out)
	}
	return out
}

// outlive tries to outlive a dispatcher with a command that does not end. Each
// of its processes holds a named pipe open as long as it lives.
func (s *effectScene) outlive(script string) {
	living := filepath.Join(s.dir, "living")
	if err := syscall.Mkfifo(living, 0o600); err != nil {
		s.Fatal(err)
	}
	r, err := os.OpenFile(living, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		s.Fatal(err)
	}
	defer r.Close()
	up := make([]byte, 3)
	// Longer and longer, until the attack comes in time also on a busy machine.
	for _, timeout := range []string{"2s", "10s", "50s"} {
		s.must(nil, "work", "add", "q", "x")
		s.must(nil, "work", "run", "q", "--once", "--", "croft", "work", "emit", "act", "now", "--at-most-once")
		said := s.must([]string{"LIVING=" + living}, "work", "dispatch", "--exec", "act="+script, "--until-empty", "--delivery-timeout", timeout)
		if !strings.Contains(said, "unknown") {
			s.Errorf("the dispatcher said %q, want that the outcome is unknown", said)
		}
		if _, err = io.ReadFull(r, up); err == nil {
			break
		}
	}
	if err != nil {
		s.Fatalf("the attack never got to its moment: %v", err)
	}
	_ = r.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := r.Read(up); !errors.Is(err, io.EOF) {
		s.Errorf("something of the command lives on after the dispatcher has recorded its end: %v", err)
	}
}

// effects runs a command that replaces the file with its effects by something
// else.
func (s *effectScene) effects(script string) {
	s.must(nil, "work", "add", "q", "x")
	out, err := s.run(nil, "work", "run", "q", "--once", "--", "sh", "-c", script)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "effects") {
		s.Errorf("the attempt: %v: %s; want that it failed because of its effects", err, out)
	}
}

// secret runs a command that looks for the secret of webhooks.
func (s *effectScene) secret() {
	secret := strings.Repeat("0123456789abcdef", 4)
	env := []string{"CROFT_WEBHOOK_SECRET=" + secret}
	look := `env >` + filepath.Join(s.dir, "env")
	s.must(nil, "work", "add", "q", "x")
	for what, args := range map[string][]string{
		"run":      {"run", "job", "--", "sh", "-c", look},
		"work run": {"work", "run", "q", "--once", "--", "sh", "-c", "croft work emit act now; " + look},
		"dispatch": {"work", "dispatch", "--exec", "act=" + look, "--webhook", "hook=http://127.0.0.1:1/", "--until-empty"},
	} {
		if what == "dispatch" {
			s.must(nil, "work", "add", "other", "x")
			s.must(nil, "work", "run", "other", "--once", "--", "croft", "work", "emit", "act", "now")
		}
		s.must(env, args...)
		seen, err := os.ReadFile(filepath.Join(s.dir, "env"))
		if err != nil || !strings.Contains(string(seen), "CROFT_TOKEN=") {
			s.Fatalf("%s: the attack never got to its moment: %v", what, err)
		}
		if strings.Contains(string(seen), secret) {
			s.Errorf("%s: the command has the secret of webhooks", what)
		}
		_ = os.Remove(filepath.Join(s.dir, "env"))
	}
}

// forge gives two receivers the same secret, so that each could sign for the
// other.
func (s *effectScene) forge() {
	called := make(chan string, 10)
	hooks := []string{"work", "dispatch", "--until-empty"}
	for _, name := range []string{"a", "b"} {
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- name }))
		defer receiver.Close()
		hooks = append(hooks, "--webhook", name+"="+receiver.URL)
	}
	for path, secret := range map[string]string{"a.secret": strings.Repeat("a", 40), "b.secret": strings.Repeat("b", 40), "short": "hunter2"} {
		if err := os.WriteFile(filepath.Join(s.dir, path), []byte(secret), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	s.must(nil, "work", "add", "q", "x")
	s.must(nil, "work", "run", "q", "--once", "--", "sh", "-c", "croft work emit a x && croft work emit b x")
	for _, secrets := range [][]string{{"--secret-file", "a.secret"}, {"--secret-file", "a=a.secret", "--secret-file", "b=short"}} {
		out, err := s.run(nil, slices.Concat(hooks, secrets)...)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "secret") {
			s.Errorf("%q: %v: %s; want a usage error about the secret", secrets, err, out)
		}
	}
	if len(called) > 0 {
		s.Errorf("%s was called under a secret that is not its own", <-called)
	}
	s.must(nil, append(hooks, "--secret-file", "a=a.secret", "--secret-file", "b=b.secret")...)
	if len(called) != 2 {
		s.Errorf("%d receivers were called, want 2", len(called))
	}
}
