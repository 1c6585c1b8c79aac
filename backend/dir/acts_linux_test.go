package dir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func takeover(key string) tenure.Request {
	req := acquire(key, "operator")
	req.Verb, req.Actor, req.Note = tenure.Takeover, "operator", "a test"
	return req
}

func listen(tb testing.TB, st *Store) <-chan string {
	tb.Helper()
	c, err := st.Acts(tb.Context())
	if err != nil {
		tb.Fatalf("Acts: %v", err)
	}
	return c
}

// expectAct expects the next act to be on the key want. "" means that the
// channel is closed.
func expectAct(tb testing.TB, c <-chan string, want string) {
	tb.Helper()
	select {
	case key, open := <-c:
		if key != want || open != (want != "") {
			tb.Fatalf("told of %.600q (open: %t), want %q", key, open, want)
		}
	case <-time.After(testenv.Patience):
		tb.Fatalf("not told of %q", want)
	}
}

func TestBrokenAnnouncementsCanBeHadAgain(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(p *fixture) error{
		"the folder is removed": func(p *fixture) error { return os.RemoveAll(p.reg.acts) },
		"the folder is moved":   func(p *fixture) error { return os.Rename(p.reg.acts, p.root+"/away") },
		"the store is wiped":    func(p *fixture) error { wipe(p, p.root); return nil },
		"inotify fails":         func(p *fixture) error { return p.reg.watcher.inotify.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t)
			other := p.another(nil)
			c := listen(t, p.Store)
			if a := one(other, takeover("job")); a.Err != nil {
				t.Fatal(a.Err)
			}
			expectAct(t, c, "job")
			must(t, broken(p))
			expectAct(t, c, "")
			c = listen(t, p.Store)
			if a := one(other, takeover("another")); a.Err != nil {
				t.Fatal(a.Err)
			}
			expectAct(t, c, "another")
		})
	}
}

func TestClosingEndsAnnouncements(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	st := p.another(nil)
	c := listen(t, st)
	must(t, st.Close())
	expectAct(t, c, "")
	if _, err := st.Acts(t.Context()); err == nil {
		t.Error("a closed store tells of acts")
	}
}

// TestPlantedActsAreIgnored: other members of the group may put anything into
// the folder, under any name.
func TestPlantedActsAreIgnored(t *testing.T) {
	t.Parallel()
	long, bad := strings.Repeat("k", 1000), "not\na key"
	for name, plant := range map[string]func(path string) error{
		"another key":   func(path string) error { return os.WriteFile(path, []byte("job"), 0o600) },
		"nothing":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a folder":      func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":          strangers["pipe"],
		"endless link":  strangers["endless link"],
		"huge file":     strangers["huge file"],
		"a long key":    func(path string) error { return plantAct(path, long) },
		"a strange key": func(path string) error { return plantAct(path, bad) },
		"another name": func(path string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), "job"), []byte("job"), 0o600)
		},
		"a link to an act": func(path string) error {
			if err := os.WriteFile(path+".real", []byte("planted"), 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t)
			c := listen(t, p.Store)
			staged := filepath.Join(p.reg.tmp, "planted")
			path := filepath.Join(p.reg.acts, hashOf("planted"))
			must(t, plant(path))
			if os.Rename(path, staged) == nil { // as Announce does
				must(t, os.Rename(staged, path))
			}
			p.must(takeover("after"))
			expectAct(t, c, "after")
		})
	}
}

// plantAct makes an act on an invalid key, under the name that it would have.
func plantAct(path, key string) error {
	return os.WriteFile(filepath.Join(filepath.Dir(path), hashOf(key)), []byte(key), 0o600)
}

// TestNoActFailsBecauseItCannotBeTold: and the store writes nothing elsewhere.
func TestNoActFailsBecauseItCannotBeTold(t *testing.T) {
	t.Parallel()
	away := filepath.Join(testenv.Memory(t), "away")
	must(t, os.Mkdir(away, 0o700))
	for name, plant := range map[string]func(p *fixture) error{
		"a link for the folder": func(p *fixture) error { return os.Symlink(away, p.reg.acts) },
		"a file for the folder": func(p *fixture) error { return os.WriteFile(p.reg.acts, nil, 0o600) },
		"a folder for the act": func(p *fixture) error {
			return os.MkdirAll(filepath.Join(p.reg.acts, hashOf("job"), "full"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFixture(t)
			must(t, plant(p))
			p.must(takeover("job"))
			if names, err := p.reg.fs.Names(p.reg.tmp); err != nil || len(names) > 0 {
				t.Errorf("left are %q, %v", names, err)
			}
			if entries, err := os.ReadDir(away); err != nil || len(entries) > 0 {
				t.Errorf("behind the link are %v, %v", entries, err)
			}
			if info, err := os.Lstat(p.reg.acts); err != nil || info.IsDir() {
				return
			}
			if _, err := p.Acts(t.Context()); !errors.Is(err, syscall.ENOTDIR) {
				t.Errorf("Acts: %v", err)
			}
			findings, err := p.Examine(t.Context())
			last := findings[len(findings)-1]
			if err != nil || last.Check != "acts" || last.Level != store.Warn {
				t.Errorf("the doctor finds %+v, %v", last, err)
			}
		})
	}
}

func TestOldActsAreTidiedAway(t *testing.T) {
	t.Parallel()
	p := newFixture(t)
	p.must(takeover("old"))
	p.must(takeover("young"))
	planted := filepath.Join(p.reg.acts, hashOf("planted"))
	foreign := filepath.Join(p.reg.acts, "not-of-the-store")
	must(t, os.MkdirAll(filepath.Join(planted, "full"), 0o700), os.WriteFile(foreign, nil, 0o600))
	then := time.Now().Add(-2 * leftoverAge)
	for _, path := range []string{filepath.Join(p.reg.acts, hashOf("old")), planted, foreign} {
		must(t, os.Chtimes(path, then, then))
	}
	if _, err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := p.reg.fs.Names(p.reg.acts)
	if err != nil || len(names) != 2 {
		t.Errorf("left are %q, %v", names, err)
	}
	for _, path := range []string{filepath.Join(p.reg.acts, hashOf("young")), foreign} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
