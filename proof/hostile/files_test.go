//go:build linux

package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// The attacker of these tests is another user of the machine. It shares a
// directory store with root, or owns a folder that root writes into, and root
// runs the real croft.
const (
	fileAttacker = 64202
	fileGroup    = 64201
)

// TestFiles attacks the directory store and the guarded file.
func TestFiles(t *testing.T) {
	t.Parallel()
	testenv.NeedRoot(t)
	croft := built(t)
	for name, attack := range map[string]func(*fileScene){
		"a pipe for a record":             func(s *fileScene) { s.record(`mkfifo -m 666 "$1"`) },
		"an endless file for a record":    func(s *fileScene) { s.record(`ln -s /dev/zero "$1"`) },
		"a huge file for a record":        func(s *fileScene) { s.record(`truncate -s 1T "$1"`) },
		"a pipe for the stamp":            func(s *fileScene) { s.stamp(`mkfifo -m 666 "$1"`) },
		"an endless file for the stamp":   func(s *fileScene) { s.stamp(`ln -s /dev/zero "$1"`) },
		"a link under a sweep":            (*fileScene).sweep,
		"a link under a write":            (*fileScene).write,
		"a planted sidecar":               (*fileScene).sidecar,
		"a planted link":                  (*fileScene).link,
		"a reader that locks the sidecar": (*fileScene).lock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(newFileScene(t, croft))
		})
	}
}

// fileScene is a folder that both users can enter.
type fileScene struct {
	*testing.T
	croft string
	base  string
	store string // of root's, shared with the attacker
}

func newFileScene(t *testing.T, croft string) *fileScene {
	t.Helper()
	s := &fileScene{T: t, croft: croft, base: t.TempDir()}
	s.store = filepath.Join(s.base, "store")
	s.must(os.Chmod(s.base, 0o755), os.Chmod(filepath.Dir(s.base), 0o755),
		os.Mkdir(s.store, 0o700), os.Chown(s.store, -1, fileGroup), os.Chmod(s.store, 0o770|fs.ModeSetgid))
	return s
}

func (s *fileScene) must(errs ...error) {
	s.Helper()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

// attacker is a shell script that the attacker runs.
func (s *fileScene) attacker(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-uc", script, "sh"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: fileAttacker, Gid: fileAttacker, Groups: []uint32{fileGroup}},
		Setpgid:    true,
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func (s *fileScene) attack(script string, args ...string) {
	s.Helper()
	if out, err := s.attacker(s.Context(), "set -e; "+script, args...).CombinedOutput(); err != nil {
		s.Fatalf("the attacker's %q: %v: %s", script, err, out)
	}
}

// racing runs the attacker's script again and again until it is told to end, or
// this process ends.
func (s *fileScene) racing(script string, args ...string) (end func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	here := fmt.Sprintf("test -d /proc/%d", os.Getpid())
	racer := s.attacker(ctx, "while "+here+"; do "+script+"; done 2>/dev/null", args...)
	s.must(racer.Start())
	return func() {
		cancel()
		_ = racer.Wait()
	}
}

// root runs croft with limited time and memory, and returns its output.
func (s *fileScene) root(stdin string, args ...string) (string, error) {
	s.Helper()
	return s.rootWith("", stdin, args...)
}

// rootIn runs croft in a folder.
func (s *fileScene) rootIn(folder string, args ...string) (string, error) {
	s.Helper()
	return s.rootWith(folder, "", args...)
}

func (s *fileScene) rootWith(folder, stdin string, args ...string) (string, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), testenv.Patience)
	defer cancel()
	bounded := []string{"-c", `ulimit -v 4000000; exec "$@"`, "sh", s.croft}
	cmd := exec.CommandContext(ctx, "/bin/sh", append(bounded, args...)...)
	cmd.Env = append(os.Environ(), "CROFT_STORE="+s.store)
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = testenv.Patience / 10
	err := cmd.Run()
	if ctx.Err() != nil {
		s.Errorf("croft %s hangs", args[0])
	}
	if strings.Contains(out.String(), "out of memory") || strings.Contains(out.String(), "goroutine ") {
		s.Errorf("croft %s fell over: %.300s", args[0], out.String())
	}
	return out.String(), err
}

// record replaces a record by something else.
func (s *fileScene) record(plant string) {
	for _, key := range []string{"job/a", "job/b"} {
		if out, err := s.root("", "run", key, "--", "true"); err != nil {
			s.Fatalf("%v: %s", err, out)
		}
	}
	versions, err := filepath.Glob(filepath.Join(s.store, "keys/*/*/*/*.json"))
	if err != nil || len(versions) != 2 {
		s.Fatalf("%q, %v: want one version of each key", versions, err)
	}
	s.attack(`rm -f "$1"; `+plant, versions[0])
	for _, command := range []string{"ls", "doctor"} {
		out, err := s.root("", command)
		if err == nil || !strings.Contains(out, versions[0]) {
			s.Errorf("croft %s does not name what is wrong: %v: %s", command, err, out)
		}
	}
	healthy := 0
	for _, key := range []string{"job/a", "job/b"} {
		if _, err := s.root("", "run", key, "--", "true"); err == nil {
			healthy++
		}
	}
	if healthy != 1 {
		s.Errorf("%d keys can be used, want the one that was not attacked", healthy)
	}
}

// stamp replaces the file that tells when to tidy by something else.
func (s *fileScene) stamp(plant string) {
	if out, err := s.root("", "run", "job/a", "--", "true"); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	path := filepath.Join(s.store, "tmp", "croft-tidied.json")
	s.attack(`rm -f "$1"; `+plant, path)
	if out, err := s.root("", "run", "job/a", "--", "true"); err != nil {
		s.Errorf("%v: %s", err, out)
	}
}

// rounds is how often a race is run.
const rounds = 25

// sweep races with root's tidying. The attacker replaces folders that are about
// to be removed by links to a folder of root's. The race may miss its moment in
// every round, and then shows nothing. TestASweepRemovesNothingThroughALink in
// backend/dir makes the same attack and always hits.
func (s *fileScene) sweep() {
	victim := filepath.Join(s.base, "victim")
	s.must(os.Mkdir(victim, 0o755))
	const files = 200 // a long removal makes it easy to hit the moment
	for i := range files {
		s.must(os.WriteFile(filepath.Join(victim, fmt.Sprint(i)), nil, 0o600))
	}
	if out, err := s.root("", "run", "job/a", "--", "true"); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	end := s.racing(`for d in "$1"/croft-dropped-*; do
		test -d "$d" && test ! -L "$d" && mv "$d" "$1/away-$$" && ln -s "$2" "$d" && rm -r "$1/away-$$"
	done`, filepath.Join(s.store, "tmp"), victim)
	defer end()
	for range rounds {
		s.attack(`cd "$1"; rm -f croft-tidied.json; mkdir croft-born-0123456789abcdef; cd croft-born-0123456789abcdef
			seq 0 $2 | xargs touch; touch -d '3 hours ago' .`,
			filepath.Join(s.store, "tmp"), fmt.Sprint(files-1))
		if out, err := s.root("", "run", "job/a", "--", "true"); err != nil {
			s.Logf("a run under attack: %v: %s", err, out)
		}
		s.must(os.RemoveAll(filepath.Join(s.store, "tmp", "croft-born-0123456789abcdef")))
	}
	end()
	if left, err := os.ReadDir(victim); err != nil || len(left) != files {
		s.Errorf("%d of %d files of root's are left: %v", len(left), files, err)
	}
}

// write races with root's writes below the attacker's folder. Like every
// program, croft follows a link that is there when it begins. The attacker must
// not get a file of its own through it. For a race that misses its moment, see
// TestAWriteStaysInTheFolderThatItHasInspected in backend/file.
func (s *fileScene) write() {
	secret, mine := filepath.Join(s.base, "secret"), filepath.Join(s.base, "mine")
	s.must(os.Mkdir(secret, 0o700), os.Mkdir(mine, 0o755), os.Chown(mine, fileAttacker, fileAttacker))
	// Root looks at every staged file between its check and its own staging.
	// With many of them the moment is easy to hit.
	s.attack(`mkdir "$1"; cd "$1"; echo old > artifact
		seq 1000000000000001 1000000000003000 | sed 's/^/.artifact.croft-stage-/' | xargs touch`, mine+"/folder")
	end := s.racing(`mv "$1" "$1.away"; ln -s "$2" "$1"; rm "$1"; mv "$1.away" "$1"`, mine+"/folder", secret)
	defer end()
	for round := range rounds {
		out, err := s.root("new", "write", mine+"/folder/artifact", "--store", s.base+"/no-store", "--stamp", fileStamp(round+1))
		if err != nil {
			s.Logf("a write under attack: %v: %s", err, out)
		}
		names, err := os.ReadDir(secret)
		s.must(err)
		for _, name := range names {
			info, err := name.Info()
			s.must(err)
			if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
				s.Errorf("round %d: user %d owns %s in root's folder", round, owner, name.Name())
			}
			s.must(os.Remove(filepath.Join(secret, name.Name())))
		}
	}
}

func fileStamp(token int) string { return fmt.Sprintf("croft1:%d:%032x:0:jobs/a", token, token) }

// sidecar lets the attacker make a sidecar first, in a sticky folder.
func (s *fileScene) sidecar() {
	public, mine := filepath.Join(s.base, "public"), filepath.Join(s.base, "mine")
	s.must(os.Mkdir(public, 0o700), os.Chmod(public, 0o777|fs.ModeSticky), os.Mkdir(mine, 0o700))
	artifact := filepath.Join(public, "artifact")
	// A sidecar with a mark that refuses every other owner.
	if out, err := s.root("x", "write", filepath.Join(mine, "artifact"), "--store", s.base+"/no-store", "--stamp", fileStamp(1000)); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	s.must(os.Chmod(mine, 0o755), os.Chmod(filepath.Join(mine, "artifact.fence"), 0o644))
	s.attack(`cat "$1" > "$2"; chmod 666 "$2"`, filepath.Join(mine, "artifact.fence"), artifact+".fence")
	for _, token := range []int{1, 2000} {
		out, err := s.root("root's", "write", artifact, "--store", s.base+"/no-store", "--stamp", fileStamp(token))
		if err == nil || !strings.Contains(out, "rm '"+artifact+".fence'") {
			s.Errorf("token %d: %v: %s; want the sidecar refused, with the repair", token, err, out)
		}
	}
	s.must(os.Remove(artifact + ".fence"))
	for token := 1; token < 3; token++ {
		if out, err := s.root("root's", "write", artifact, "--store", s.base+"/no-store", "--stamp", fileStamp(token)); err != nil {
			s.Errorf("after the repair: %v: %s", err, out)
		}
	}
}

// link lets the attacker replace the artifact by a link to a file of root's, in
// a sticky folder.
func (s *fileScene) link() {
	public, victim := filepath.Join(s.base, "public"), filepath.Join(s.base, "victim")
	s.must(os.Mkdir(public, 0o700), os.Chmod(public, 0o777|fs.ModeSticky), os.WriteFile(victim, []byte("root's"), 0o600))
	artifact := filepath.Join(public, "artifact")
	s.attack(`ln -s "$1" "$2"`, victim, artifact)
	out, err := s.root("new", "write", artifact, "--store", s.base+"/no-store", "--stamp", fileStamp(1))
	if err == nil || !strings.Contains(out, artifact) {
		s.Errorf("%v: %s; want the link refused", err, out)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "root's" {
		s.Errorf("root's file holds %q, %v", got, err)
	}
}

// lock lets the attacker, who may read the artifact, try to lock the sidecar.
func (s *fileScene) lock() {
	artifact := filepath.Join(s.base, "artifact")
	s.must(os.WriteFile(artifact, []byte("public"), 0o644), os.Chmod(artifact, 0o644))
	if out, err := s.root("one", "write", artifact, "--store", s.base+"/no-store", "--stamp", fileStamp(1)); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	s.attack(`test "$(cat "$1")" = one`, artifact)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	tried := filepath.Join(s.store, "tried")
	locker := s.attacker(ctx, `(exec 9< "$1"; flock -x 9; : > "$2"; sleep 1000) || : > "$2"`, artifact+".fence", tried)
	s.must(locker.Start())
	defer func() { cancel(); _ = locker.Wait() }()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat(tried); err == nil {
			break
		}
		if time.Since(began) > testenv.Patience {
			s.Fatal("the attacker did not try")
		}
	}
	if out, err := s.root("two", "write", artifact, "--store", s.base+"/no-store", "--stamp", fileStamp(2)); err != nil {
		s.Errorf("a reader keeps a writer out: %v: %s", err, out)
	}
}
