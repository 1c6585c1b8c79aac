//go:build linux

package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// A repository has a croft.toml that names its author's host as the store, as a
// named store or as a guard. A user with credentials of every kind has cloned
// it, and works in it. Nothing may reach the host, and no file may be made.
func TestAClonedProjectSendsNoCredentials(t *testing.T) {
	t.Parallel()
	bin := built(t)
	evil, away := newAttacker(t), t.TempDir()
	for _, target := range hostileTargets(evil, away) {
		place, _, _ := strings.Cut(target, "#")
		for _, text := range []string{
			fmt.Sprintf("store = %q\n", place),
			fmt.Sprintf("store = \"prod\"\n[stores]\nprod = %q\n", place),
			fmt.Sprintf("[keys.\"\"]\nguards = [%q]\n", target),
		} {
			clone := t.TempDir()
			if err := os.WriteFile(filepath.Join(clone, "croft.toml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			below := filepath.Join(clone, "cmd")
			if err := os.Mkdir(below, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"acquire", "job"}, {"run", "job", "--", "true"}, {"ls"}, {"ls", "--store", "prod"}, {"status"}} {
				code, out := asOperatorIn(t, below, bin, args...)
				if code != 2 || !strings.Contains(out, "names a place") {
					t.Errorf("croft %s with\n%sexit code %d:\n%s", strings.Join(args, " "), text, code, out)
				}
			}
		}
	}
	evil.nothing(t, away)
}

// TestAPlantedConfigIsNotRead: another user puts something called croft.toml
// into a folder that lies above root's working directory.
func TestAPlantedConfigIsNotRead(t *testing.T) {
	t.Parallel()
	testenv.NeedRoot(t)
	croft := built(t)
	const text = `echo 'store = "planted"' >"$1"`
	for name, plant := range map[string]string{
		"a file":              text,
		"a pipe":              `mkfifo -m 666 "$1"`,
		"an endless file":     `ln -s /dev/zero "$1"`,
		"a huge file":         `truncate -s 1T "$1"`,
		"a folder":            `mkdir "$1"`,
		"a link to root's":    `ln -s "$2" "$1"`,
		"a link to nowhere":   `ln -s /nowhere "$1"`,
		"a link to a link":    `ln -s "$2" "$1.2"; ln -s "$1.2" "$1"`,
		"a file for everyone": text + `; chmod 666 "$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFileScene(t, croft)
			rootsFile := filepath.Join(s.base, "roots.toml")
			s.must(os.WriteFile(rootsFile, []byte("store = \"planted\"\n"), 0o644))
			// Everybody may write to the first folder, as to /tmp. The second
			// belongs to the attacker.
			for folder, mode := range map[string]os.FileMode{"open": 0o777 | os.ModeSticky, "theirs": 0o755} {
				dir := filepath.Join(s.base, folder)
				s.must(os.Mkdir(dir, 0o755), os.Chmod(dir, mode), os.Mkdir(filepath.Join(dir, "work"), 0o755))
				if folder == "theirs" {
					s.must(os.Chown(dir, fileAttacker, fileAttacker))
				}
				s.attack(plant, filepath.Join(dir, "croft.toml"), rootsFile)
				out, err := s.rootIn(filepath.Join(dir, "work"), "run", "job", "--", "true")
				switch {
				case strings.Contains(out, "planted"):
					t.Errorf("%s: the file was read:\n%s", folder, out)
				case folder == "open" && (err != nil || !strings.Contains(out, "croft: ignored ")):
					t.Errorf("%s: the attacker stops root's work, or it is not said: %v\n%s", folder, err, out)
				case folder == "theirs" && err == nil:
					t.Errorf("%s: croft goes on as if there were no file:\n%s", folder, out)
				}
			}
		})
	}
}

// TestAConfigThatIsSwappedIsNotRead: while root looks, the attacker swaps its
// own file for a link to one of root's, and back.
func TestAConfigThatIsSwappedIsNotRead(t *testing.T) {
	t.Parallel()
	testenv.NeedRoot(t)
	s := newFileScene(t, built(t))
	rootsFile := filepath.Join(s.base, "roots.toml")
	s.must(os.WriteFile(rootsFile, []byte("store = \"planted\"\n"), 0o644))
	dir := filepath.Join(s.base, "theirs")
	s.must(os.Mkdir(dir, 0o755), os.Mkdir(filepath.Join(dir, "work"), 0o755),
		os.Chown(dir, fileAttacker, fileAttacker))
	end := s.racing(`cd "$1" && echo 'store = "planted"' >a && mv a croft.toml && ln -s "$2" b && mv b croft.toml`,
		dir, rootsFile)
	defer end()
	for range 20 {
		if out, _ := s.rootIn(filepath.Join(dir, "work"), "config", "show"); strings.Contains(out, "planted") {
			t.Fatalf("the file was read:\n%s", out)
		}
	}
}

// TestAConfigThatOthersCanChangeIsNotRead: root's own file, with permissions
// that let others write to it.
func TestAConfigThatOthersCanChangeIsNotRead(t *testing.T) {
	t.Parallel()
	testenv.NeedRoot(t)
	s := newFileScene(t, built(t))
	dir := filepath.Join(s.base, "mine")
	file := filepath.Join(dir, "croft.toml")
	s.must(os.Mkdir(dir, 0o755), os.WriteFile(file, []byte("[keys.\"\"]\nttl = \"17m\"\n"), 0o644))
	for _, c := range []struct {
		group int
		mode  os.FileMode
		read  bool
	}{{0, 0o644, true}, {0, 0o664, true}, {fileGroup, 0o644, true}, {fileGroup, 0o664, false}, {0, 0o646, false}} {
		s.must(os.Chown(file, 0, c.group), os.Chmod(file, c.mode))
		out, err := s.rootIn(dir, "config", "show")
		if read := err == nil && strings.Contains(out, "17m0s"); read != c.read {
			t.Errorf("group %d, mode %v: read is %v, want %v:\n%s", c.group, c.mode, read, c.read, out)
		}
		if !c.read && !strings.Contains(out, "run chmod go-w "+file) {
			t.Errorf("group %d, mode %v: it does not say what to do:\n%s", c.group, c.mode, out)
		}
	}
}
