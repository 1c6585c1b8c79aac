//go:build linux || darwin

package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// listing returns all paths in a folder, with their contents.
func listing(t *testing.T, top string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		rel, _ := filepath.Rel(top, path)
		if e.IsDir() {
			found[rel] = "folder"
			return nil
		}
		data, err := os.ReadFile(path)
		found[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// If nothing is lost, the replay must give the same folder that the real code
// left.
func TestAReplayGivesTheSameFolder(t *testing.T) {
	t.Parallel()
	same := func(t *testing.T, r *Recorder) {
		t.Helper()
		d := r.Disk()
		for d.Next() {
		}
		top := filepath.Join(testenv.Memory(t), "again")
		if err := d.Cut(Choice{Keep: func(int, int) bool { return true }}).Make(top); err != nil {
			t.Fatal(err)
		}
		want, got := listing(t, r.Top()), listing(t, top)
		for path := range want {
			if got[path] != want[path] {
				t.Errorf("%s: %.60q, want %.60q", path, got[path], want[path])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d names, want %d", len(got), len(want))
		}
	}
	for _, life := range dirLives {
		r := newDirRun(t, nil)
		life(r)
		r.close()
		same(t, r.rec)
	}
	g := newGuardRun(t)
	guardLife(g, plain)
	same(t, g.rec)
}

// The rules of the package comment hold, one by one.
func TestTheRulesOfADisk(t *testing.T) {
	t.Parallel()
	none, every := Choice{Keep: func(int, int) bool { return false }}, Choice{Keep: func(int, int) bool { return true }}
	only := func(steps ...int) Choice {
		return Choice{Keep: func(i, _ int) bool {
			for _, s := range steps {
				if s == i {
					return true
				}
			}
			return false
		}}
	}
	for name, c := range map[string]struct {
		do     func(r *Recorder, write func(name, text string, sync bool))
		choice Choice
		want   string
	}{
		"a synced file without a synced name may be gone": {func(_ *Recorder, w func(string, string, bool)) { w("a", "x", true) }, none, "map[]"},
		"or there, whole":          {func(_ *Recorder, w func(string, string, bool)) { w("a", "x", true) }, every, "map[a:x]"},
		"a name without the bytes": {func(_ *Recorder, w func(string, string, bool)) { w("a", "x", false) }, only(0), "map[a:]"},
		"the length without the bytes": {
			func(_ *Recorder, w func(string, string, bool)) { w("a", "x", false) },
			Choice{Keep: func(i, _ int) bool { return i == 0 }, Sizes: true},
			"map[a:\x00]",
		},
		"a synced folder keeps its names": {func(r *Recorder, w func(string, string, bool)) {
			w("a", "x", true)
			check(r.SyncDir(fsys.Anywhere(r.Top())))
		}, none, "map[a:x]"},
		"a rename is kept whole": {func(r *Recorder, w func(string, string, bool)) {
			w("a", "x", true)
			check(r.SyncDir(fsys.Anywhere(r.Top())))
			check(r.Rename(fsys.Anywhere(r.Top()+"/a"), fsys.Anywhere(r.Top()+"/b")))
		}, every, "map[b:x]"},
		"or lost whole": {func(r *Recorder, w func(string, string, bool)) {
			w("a", "x", true)
			check(r.SyncDir(fsys.Anywhere(r.Top())))
			check(r.Rename(fsys.Anywhere(r.Top()+"/a"), fsys.Anywhere(r.Top()+"/b")))
		}, none, "map[a:x]"},
		"a later step may come without an earlier": {func(_ *Recorder, w func(string, string, bool)) {
			w("a", "x", true)
			w("b", "y", true)
		}, only(1), "map[b:y]"},
		"a file in a folder that is lost is lost": {func(r *Recorder, w func(string, string, bool)) {
			check(r.Mkdir(fsys.Anywhere(r.Top()+"/d"), 0o700))
			w("d/a", "x", true)
			check(r.SyncDir(fsys.Anywhere(r.Top() + "/d")))
		}, none, "map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRecorder(t.TempDir())
			c.do(r, func(name, text string, sync bool) {
				f, err := r.Open(fsys.Anywhere(filepath.Join(r.Top(), name)), os.O_CREATE|os.O_WRONLY, 0o600)
				check(err)
				_, err = f.Write([]byte(text))
				check(err)
				if sync {
					check(f.Sync())
				}
				check(f.Close())
			})
			d := r.Disk()
			for d.Next() {
			}
			top := filepath.Join(t.TempDir(), "cut")
			check(d.Cut(c.choice).Make(top))
			if got := fmt.Sprint(listing(t, top)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
