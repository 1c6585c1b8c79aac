package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestUnfitFilesAreRefused checks that errors name the path and say what
// to do, and that nothing is made or changed.
func TestUnfitFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(in("text"), []byte(strings.Repeat("not a database\n", 100)), 0o600))
	must(t, os.WriteFile(in("a"), nil, 0o600))
	must(t, os.Link(in("a"), in("b")))
	must(t, os.Symlink(in("nowhere"), in("dangling")))
	must(t, os.Mkdir(in("Dropbox"), 0o700))
	must(t, os.Symlink(in("Dropbox"), in("innocent")))
	must(t, os.WriteFile(in("Dropbox/real.db"), nil, 0o600))
	must(t, os.Symlink(in("Dropbox/real.db"), in("link.db")))
	foreign, err := sql.Open("sqlite", in("foreign.db"))
	must(t, err)
	_, err = foreign.Exec("CREATE TABLE bookmark (id INTEGER)")
	must(t, errors.Join(err, foreign.Close()))
	labelled, err := sql.Open("sqlite", in("labelled.db"))
	must(t, err)
	_, err = labelled.Exec("PRAGMA application_id = 252006673")
	must(t, errors.Join(err, labelled.Close()))

	for _, c := range []struct{ path, says string }{
		{"", "name a file"},
		{"~/croft.db", "write the whole path"},
		{"a\x00b", "NUL"},
		{":memory:", "plain path"},
		{"file:x.db?mode=memory", "plain path"},
		{dir, "name a file in it"},
		{dir + "/", "name a file in it"},
		{in("missing/croft.db"), "mkdir -p"},
		{in("text/below.db"), "folder"},
		{in("b"), "hard links"},
		{in("dangling"), "leads nowhere"},
		{"/dev/null", "not a regular file"},
		{in("Dropbox/croft.db"), "Dropbox"},
		{in("innocent/croft.db"), "Dropbox"},
		{in("link.db"), "Dropbox"},
		{in("foreign.db"), "another application"},
		{in("labelled.db"), "another application"},
	} {
		st, err := Open(t.Context(), c.path, nil)
		if err == nil {
			st.Close()
		}
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v; want invalid, and %q", c.path, err, c.says)
		}
	}
	if _, err := Open(t.Context(), in("text"), nil); err == nil || !strings.Contains(err.Error(), "no SQLite database") {
		t.Errorf("a text file: %v", err)
	}
	if data, err := os.ReadFile(in("text")); err != nil || !strings.HasPrefix(string(data), "not a database") || len(data) != 1500 {
		t.Errorf("the text file has become %d bytes, %v", len(data), err)
	}
	var mode string
	if query(t, in("foreign.db"), "PRAGMA journal_mode", &mode); mode != "delete" {
		t.Errorf("the database of another application has been made %s", mode)
	}
	if _, err := Open(t.Context(), in("x.db"), &Options{Retention: -1}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a negative retention: %v", err)
	}
	for _, name := range []string{"x.db", "nowhere", "Dropbox/croft.db"} {
		if _, err := os.Lstat(in(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made all the same", name)
		}
	}
}

// TestNamesAreNoParameters opens files with strange names. None is taken for a
// parameter.
func TestNamesAreNoParameters(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	for _, name := range []string{"a?mode=memory", "b%41", "c#d", "e f", "g&_pragma=synchronous(off)", "ü;", "file:h", `i"'\`} {
		file := filepath.Join(dir, name)
		st := open(t, file, nil)
		if a := one(st, acquire("k", "ann")); a.Err != nil {
			t.Errorf("%s: %v", name, a.Err)
		}
		st.Close()
		if info, err := os.Lstat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		g, err := guard.Open(t.Context(), targetOf(file, "row/1"))
		if err != nil {
			t.Errorf("the guard's own target: %v", err)
			continue
		}
		if g.Target() != targetOf(file, "row/1") {
			t.Errorf("%s is now %s", targetOf(file, "row/1"), g.Target())
		}
		g.Close()
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 8 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// TestLinksLeadToOneStore checks that the log lies beside the file itself,
// whichever link the file was opened by.
func TestLinksLeadToOneStore(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, "real"), 0o700))
	must(t, os.Symlink("real", filepath.Join(dir, "folder")))
	st := open(t, filepath.Join(dir, "real", "croft.db"), nil)
	defer st.Close()
	must(t, os.Symlink("real/croft.db", filepath.Join(dir, "link.db")))
	if a := one(st, acquire("k", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, path := range []string{"folder/croft.db", "link.db", "folder/../real/croft.db"} {
		other := open(t, filepath.Join(dir, path), nil)
		if a := one(other, acquire("k", "bob")); !errors.Is(a.Err, tenure.ErrHeld) {
			t.Errorf("%s is another store: %v", path, a.Err)
		}
		other.Close()
	}
	if beside, err := filepath.Glob(filepath.Join(dir, "*-wal")); err != nil || len(beside) > 0 {
		t.Errorf("there are logs beside a link: %v, %v", beside, err)
	}
}

// TestURLs checks which URLs are good, and that bad ones are refused rather
// than ignored.
func TestURLs(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	st, err := store.Open(t.Context(), "sqlite://"+dir+"/with%20space%3F.db?retention=90m&lock_wait=3s")
	must(t, err)
	s := st.(*Store)
	if s.options.Retention != 90*time.Minute || s.options.LockWait != 3*time.Second || s.base.file != filepath.Join(dir, "with space?.db") {
		t.Errorf("retention %s, lock_wait %s, file %s", s.options.Retention, s.options.LockWait, s.base.file)
	}
	st.Close()
	for _, url := range []string{
		"sqlite://croft.db", "sqlite://host/croft.db", "sqlite://user@/croft.db", "sqlite:///x.db#row", "sqlite:///x.db?ttl=1s", "sqlite:///x.db?retention=soon", "sqlite:///x.db?retention=-1h",
		"sqlite:///x.db?lock_wait=0", "sqlite:///x.db?retention=1h&retention=2h", "sqlite:///x.db?network=yes", "sqlite:///x.db?retention=%zz", "sqlite://", "sqlite:///",
	} {
		if st, err := store.Open(t.Context(), url); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, %v, want invalid", url, st, err)
		}
	}
	for _, url := range []string{"sqlite://" + dir + "/with%20space%3F.db", "sqlite://" + dir + "/missing.db#row", "sqlite://" + dir + "/with%20space%3F.db#a//b"} {
		if _, err := guard.Open(t.Context(), url); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("the guard %s: %v, want invalid", url, err)
		}
	}
}

// TestNetworkMountsAreNotForSQLite asks the functions behind the refusal and
// the doctor about such mounts, because none is at hand.
func TestNetworkMountsAreNotForSQLite(t *testing.T) {
	t.Parallel()
	for kind, want := range map[mount.Kind]store.Level{
		mount.Local: store.OK, mount.Memory: store.OK, mount.Network: store.Bad, mount.Foreign: store.Warn, mount.Overlay: store.Warn, mount.Unknown: store.Warn,
	} {
		findings := gradeMount(mount.Mount{Name: "some", Kind: kind}, "fine")
		if got := level(findings, "file system"); got != want {
			t.Errorf("kind %d is %s, want %s", kind, got, want)
		}
		for _, f := range findings {
			if (f.Level == store.OK) != (f.Advice == "") {
				t.Errorf("%s is %s and advises %q", f.Check, f.Level, f.Advice)
			}
		}
	}
	for _, m := range []mount.Mount{{Name: "nfs", Kind: mount.Network}, {Name: "fuse", Kind: mount.Foreign}} {
		if reason := unfit(m); !strings.Contains(reason, m.Name) || !strings.Contains(reason, "network=allow") {
			t.Errorf("%s: %q", m.Name, reason)
		}
	}
	for _, m := range []mount.Mount{{Name: "ext4", Kind: mount.Local}, {Name: "tmpfs", Kind: mount.Memory}, {Name: "overlay", Kind: mount.Overlay}, {}} {
		if reason := unfit(m); reason != "" {
			t.Errorf("%s: %q", m.Name, reason)
		}
	}
}

// TestAFileThatIsGoneIsMadeAnew checks that a write to a file that nobody else
// can see any more is no grant.
func TestAFileThatIsGoneIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"removed", "replaced"} {
		file := filepath.Join(memoryDir(t), "croft.db")
		st := open(t, file, nil)
		defer st.Close()
		held := acquire("k", "ann")
		if a := one(st, held); a.Err != nil {
			t.Fatal(a.Err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			must(t, os.Rename(file+suffix, file+".old"+suffix))
		}
		if how == "replaced" {
			other := open(t, file, nil)
			if a := one(other, acquire("k", "bob")); a.Err != nil {
				t.Fatal(a.Err)
			}
			other.Close()
		}
		next := acquire("new", "ann")
		// The background may have opened the new file already.
		if a := one(st, next); a.Err == nil {
			other := open(t, file, nil)
			if rec, err := other.Get(t.Context(), "new"); err != nil || rec.Owner != "ann" {
				t.Errorf("%s: a grant that nobody sees: %+v, %v", how, rec, err)
			}
			other.Close()
		} else if !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "moved or removed") {
			t.Errorf("%s: at first: %v", how, a.Err)
		}
		if a := one(st, next); a.Err != nil {
			t.Errorf("%s: asked again: %v", how, a.Err)
		}
		rec, err := st.Get(t.Context(), "k")
		if want := map[string]string{"removed": "", "replaced": "bob"}[how]; err != nil || rec.Owner != want {
			t.Errorf("%s: the key is %q's, %v, want %q", how, rec.Owner, err, want)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", how, info, err)
		}
		inOrder(t, file)
	}
}

// TestALinkThatLeadsElsewhereIsFollowed changes a symbolic link on the path, as
// a deployment does with "current". Later users open another file by the same
// path.
func TestALinkThatLeadsElsewhereIsFollowed(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, errors.Join(os.Mkdir(in("41"), 0o700), os.Mkdir(in("42"), 0o700), os.Symlink("41", in("current"))))
	st := open(t, in("current/croft.db"), nil)
	defer st.Close()
	g, err := guard.Open(t.Context(), targetOf(in("current/croft.db"), "row"))
	must(t, err)
	defer g.Close()
	must(t, one(st, acquire("before", "ann")).Err)
	must(t, errors.Join(os.Symlink("42", in("next")), os.Rename(in("next"), in("current"))))
	other := open(t, in("current/croft.db"), nil)
	defer other.Close()
	must(t, one(other, acquire("k", "bob")).Err)
	mine := acquire("k", "ann")
	// The background may have followed the link already.
	if a := one(st, mine); !errors.Is(a.Err, tenure.ErrHeld) &&
		(!errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "moved or removed")) {
		t.Errorf("at first: %+v, %v", a.Record, a.Err)
	}
	if a := one(st, mine); !errors.Is(a.Err, tenure.ErrHeld) {
		t.Errorf("what bob holds where the path leads now: %+v, %v", a.Record, a.Err)
	}
	if mark, err := g.Raise(t.Context(), stampOf(1001)); err == nil {
		t.Errorf("a fence was raised where the path does not lead: %+v", mark)
	}
}

// TestTheCallersConnectionsStayWithTheirFile moves the file of the caller's own
// database. At its path is now another file, in which others take leases, and
// no connection of the pool sees those.
func TestTheCallersConnectionsStayWithTheirFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "app.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)")
	must(t, err)
	defer db.Close()
	st := New(db, nil)
	defer st.Close()
	must(t, one(st, acquire("before", "ann")).Err)
	_, err = st.Get(t.Context(), "before") // on another connection than the writer's
	must(t, err)
	move := func(from, to string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			must(t, os.Rename(from+suffix, to+suffix))
		}
	}
	move(file, file+".old")
	if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, store.ErrUnknown) {
		t.Errorf("there is no file: %+v, %v", a.Record, a.Err)
	}
	other := open(t, file, nil)
	defer other.Close()
	must(t, one(other, acquire("k", "bob")).Err)
	for range 3 {
		if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "open it anew") {
			t.Errorf("bob holds it in the new file: %+v, %v", a.Record, a.Err)
		}
	}
	move(file, file+".new")
	move(file+".old", file)
	must(t, one(st, acquire("after", "ann")).Err)
}

// TestTablesThatWereRemovedAreMadeAnew checks reading, and writing without
// having read.
func TestTablesThatWereRemovedAreMadeAnew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	defer st.Close()
	must(t, one(st, acquire("k", "ann")).Err)
	execute(t, file, "DROP TABLE croft_lease; DROP TABLE croft_migration; DROP TABLE croft_fence; DROP TABLE croft_rekeying; DROP TABLE croft_item; DROP TABLE croft_effect; DROP TABLE croft_dispatcher; DROP TABLE croft_refusal; DROP TABLE croft_act; DROP TABLE croft_rule; DROP TABLE croft_partition; DROP TABLE croft_start")
	mine := acquire("k", "bob")
	if a := one(st, mine); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "ask again") {
		t.Errorf("at first: %v", a.Err)
	}
	must(t, one(st, mine).Err)
}

// TestTheCallersDatabaseMustBeFit checks that errors say which setting is
// wrong, and how to set it.
func TestTheCallersDatabaseMustBeFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dsn  string
		most int
		says string
	}{
		"a rollback journal": {"file:" + filepath.Join(memoryDir(t), "x.db"), 0, "journal_mode = WAL"},
		"in memory":          {":memory:", 0, "in memory"},
		"one connection":     {"file:" + filepath.Join(memoryDir(t), "x.db") + "?_pragma=journal_mode(wal)", 1, "SetMaxOpenConns"},
	} {
		db, err := sql.Open("sqlite", c.dsn)
		must(t, err)
		defer db.Close()
		db.SetMaxOpenConns(c.most)
		st := New(db, nil)
		defer st.Close()
		if a := one(st, acquire("k", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), c.says) {
			t.Errorf("%s: %v; it does not say %q", name, a.Err, c.says)
		}
	}
}

// TestADamagedFileIsSaid checks that errors say what to do, and that nothing is
// decided by unreadable data.
func TestADamagedFileIsSaid(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "croft.db")
	st := open(t, file, nil)
	for i := range 300 {
		if a := one(st, acquire(fmt.Sprintf("some/key/%d", i), "ann")); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	must(t, st.Close())
	data, err := os.ReadFile(file)
	must(t, err)
	for i := 4096; i < len(data); i++ { // all but the first page
		data[i] = 0xa5
	}
	must(t, os.WriteFile(file, data, 0o600))
	st, err = Open(t.Context(), file, nil)
	if err == nil {
		defer st.Close()
		err = one(st, acquire("some/key/7", "bob")).Err
	}
	if err == nil || !strings.Contains(err.Error(), ".recover") || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestAClosedStoreAnswers checks calls made before, while and after the store
// is closed.
func TestAClosedStoreAnswers(t *testing.T) {
	t.Parallel()
	for range 20 {
		st := open(t, filepath.Join(memoryDir(t), "croft.db"), nil)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for {
					a := one(st, acquire(fmt.Sprintf("k/%d", n), "ann"))
					if a.Err != nil && !errors.Is(a.Err, store.ErrUnknown) && !errors.Is(a.Err, tenure.ErrHeld) {
						t.Errorf("while it is closed: %v", a.Err)
					}
					if errors.Is(a.Err, ErrClosed) {
						return
					}
				}
			})
		}
		must(t, st.Close())
		must(t, st.Close())
		all.Wait()
		for _, err := range st.List(t.Context(), "") {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("listing: %v", err)
			}
		}
		if _, err := st.Watch(t.Context(), "k"); !errors.Is(err, ErrClosed) {
			t.Errorf("watching: %v", err)
		}
		if _, err := st.Sweep(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("sweeping: %v", err)
		}
	}
}

// TestTheLogIsCopiedBackWhateverThePoolSays uses a pool that never copies the
// log back. The store does it, because the log would grow without end.
func TestTheLogIsCopiedBackWhateverThePoolSays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(memoryDir(t), "app.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=wal_autocheckpoint(0)&_pragma=query_only(1)&_pragma=synchronous(off)")
	must(t, err)
	defer db.Close()
	execute(t, file, "PRAGMA journal_mode = WAL")
	execute(t, file, Schema())
	st := New(db, nil)
	defer st.Close()
	before, err := os.Stat(file)
	must(t, err)
	var batch []tenure.Request
	for i := range 200 {
		req := acquire(fmt.Sprintf("k/%d", i), "ann")
		req.Progress = strings.Repeat("p", 1000)
		batch = append(batch, req)
	}
	for range 20 { // some 1300 pages
		for _, a := range st.Apply(t.Context(), batch) {
			must(t, a.Err)
		}
		for i := range batch {
			batch[i].Verb = tenure.Report
		}
	}
	if after, err := os.Stat(file); err != nil || after.Size() < before.Size()+100<<10 {
		t.Errorf("the file had %d bytes and has %d, %v: everything is in the log", before.Size(), after.Size(), err)
	}
}
