//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// guardTemp is a directory without symbolic links in its path.
func guardTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func guardMust(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestGuardFollowsSymbolicLinksToTheFileItself(t *testing.T) {
	dir := guardTemp(t)
	guardMust(t,
		os.MkdirAll(filepath.Join(dir, "real", "deep"), 0o700),
		os.WriteFile(filepath.Join(dir, "real", "file"), []byte("old"), 0o600),
		os.Symlink("real/file", filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(dir, "link"), filepath.Join(dir, "twice")),
		os.Symlink("real/deep", filepath.Join(dir, "folder")),
		os.Symlink("real/new", filepath.Join(dir, "dangling")),
	)
	t.Chdir(dir)
	for path, want := range map[string]string{
		"link":                              "real/file",
		"./twice":                           "real/file",
		"real//file":                        "real/file",
		filepath.Join(dir, "link"):          "real/file",
		"folder/x":                          "real/deep/x",
		"folder/../file":                    "real/file", // where the kernel finds it; a cleaned path would be another file
		"dangling":                          "real/new",
		filepath.Join(dir, "folder", "x"):   "real/deep/x",
		"real/deep/../../link":              "real/file",
		"absent with spaces and ?#%":        "absent with spaces and ?#%",
		strings.Repeat("./", 300) + "twice": "real/file",
	} {
		f, err := Open(path, nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if f.Target() != filepath.Join(dir, want) {
			t.Errorf("%s guards %s, want %s", path, f.Target(), want)
		}
	}
	f := guardOpen(t, "dangling")
	guardPut(t, f, 1, "one")
	guardPut(t, f, 2, "two")
	if got, err := os.ReadFile("dangling"); err != nil || string(got) != "two" {
		t.Errorf("through the link: %q, %v", got, err)
	}
	if info, err := os.Lstat("dangling"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is no longer one: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "real", "new"+guardSuffix)); err != nil {
		t.Errorf("the sidecar is not beside the file itself: %v", err)
	}
	// A file that becomes a link later is neither followed nor replaced.
	f = guardOpen(t, "real/file")
	guardMust(t, os.Remove("real/file"), os.Symlink("new", "real/file"))
	if _, err := f.Write(t.Context(), guardStamp(9), strings.NewReader("nine")); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a file that became a link: %v, want ErrInvalid", err)
	}
}

func TestGuardRefusesWhatItCannotGuard(t *testing.T) {
	dir := guardTemp(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", at("socket"))
	guardMust(t, err,
		os.Mkdir(at("folder"), 0o700),
		os.WriteFile(at("file"), []byte("kept"), 0o600),
		os.Link(at("file"), at("other name")),
		os.Symlink(at("file"), at("link")),
		os.Symlink("circle", at("circle")),
		os.Symlink("folder", at("link to folder")),
		os.Symlink("absent/file", at("link to nowhere")),
		syscall.Mkfifo(at("pipe"), 0o600))
	defer socket.Close()
	for path, why := range map[string]string{
		"":                                    "empty",
		at("folder"):                          "directory",
		at("folder") + "/":                    "directory",
		at("folder") + "/.":                   "directory",
		at("folder") + "/..":                  "directory",
		"/":                                   "directory",
		at("link to folder"):                  "directory",
		at("file"):                            "hard links",
		at("link"):                            "hard links",
		at("circle"):                          "too many symbolic links",
		at("link to nowhere"):                 "does not exist; create it first",
		at("absent/file"):                     "does not exist; create it first",
		at("file/file"):                       "not a directory",
		at("pipe"):                            "pipe",
		at("socket"):                          "socket",
		"/dev/null":                           "device",
		at("x" + guardSuffix):                 "sidecars",
		at(".x.croft-stage-0123456789abcdef"): "unfinished writes",
		at(strings.Repeat("n", 250)):          "too long",
		at("nul\x00"):                         "NUL",
	} {
		_, err := Open(path, nil)
		if err == nil || !strings.Contains(err.Error(), why) || why != "not a directory" && !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v; want ErrInvalid that says %q", path, err, why)
		}
	}
	if _, err := Open(at("absent/file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v, want it to match fs.ErrNotExist, too", err)
	}
	// The same goes for a file that changes after it was opened.
	f := guardOpen(t, at("fine"))
	guardPut(t, f, 1, "one")
	guardMust(t, os.Link(at("fine"), at("second name")))
	if _, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("two")); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "2 hard links") {
		t.Errorf("a second hard link: %v", err)
	}
	guardHas(t, f, 1, "one")
	guardMust(t, os.Remove(at("second name")))
	guardPut(t, f, 2, "two")
}

func TestGuardLongNamesFit(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), strings.Repeat("ü", 123)))
	guardPut(t, f, 1, "one")
	guardPut(t, f, 2, "two")
	guardHas(t, f, 2, "two")
}

func TestGuardOpensURLsAndPaths(t *testing.T) {
	dir := guardTemp(t)
	t.Chdir(dir)
	for target, want := range map[string]string{
		"file://" + dir + "/a%20b%3F.json":   dir + "/a b?.json",
		"file://localhost" + dir + "/x":      dir + "/x",
		"file://" + dir + "/x?network=allow": dir + "/x",
		dir + "/plain?network=allow":         dir + "/plain?network=allow",
		"relative.json":                      dir + "/relative.json",
		"./a#b":                              dir + "/a#b",
		"./file:colon":                       dir + "/file:colon",
	} {
		g, err := guard.Open(t.Context(), target)
		if err != nil || g.Target() != want {
			t.Errorf("%s: %v, %v; want %s", target, g, err, want)
		}
		if g == nil {
			continue
		}
		if _, ok := g.(guard.Artifact); !ok {
			t.Errorf("%s: %T is no guard.Artifact", target, g)
		}
	}
	for _, target := range []string{
		"file://relative/x", "file://host/x", "file://", "file:///x?network=yes", "file:///x?lock=1", "file:///x?network=allow&network=allow",
		"file:colon", "file://ann@localhost/x", "file:///x#y", "file:///x?%zz", "file://" + dir + "/",
	} {
		if g, err := guard.Open(t.Context(), target); !errors.Is(err, fence.ErrInvalid) || g != nil {
			t.Errorf("%s: %v, %v; want ErrInvalid", target, g, err)
		}
	}
}

func TestGuardDamagedSidecarIsNamedAndNeverReset(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"cut short":       func(path string) error { return os.Truncate(path, 100) },
		"cut to one slot": func(path string) error { return os.Truncate(path, slotSize) },
		"both slots": func(path string) error {
			image, err := os.ReadFile(path)
			if err == nil {
				image[30]++
				image[slotSize+30]++
				err = os.WriteFile(path, image, 0o600)
			}
			return err
		},
		"a number alone": func(path string) error { return os.WriteFile(path, []byte("42\n"), 0o600) },
		"a directory":    func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a pipe":         func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
		"a second name of another file": func(path string) error {
			return errors.Join(os.Rename(path, path+".elsewhere"), os.Link(path+".elsewhere", path))
		},
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := guardOpen(t, filepath.Join(testenv.Memory(t), "artifact"))
			guardPut(t, f, 1, "one")
			guardPut(t, f, 2, "two")
			guardMust(t, spoil(f.sidecar))
			_, mark := f.Mark(t.Context())
			_, write := f.Write(t.Context(), guardStamp(9), strings.NewReader("nine"))
			_, raise := f.Raise(t.Context(), guardStamp(9))
			_, rekey := f.Rekey(t.Context(), "other", "ann", "why")
			for verb, err := range map[string]error{"mark": mark, "write": write, "raise": raise, "rekey": rekey} {
				var damaged *SidecarError
				if name == "a directory" && err != nil { // for writing it cannot even be opened
					continue
				}
				if strings.HasPrefix(name, "a second name") && verb == "mark" { // reading does no harm
					continue
				}
				if !errors.As(err, &damaged) || damaged.Path != f.sidecar || !strings.Contains(err.Error(), "rm '"+f.sidecar+"'") {
					t.Errorf("%s: %v; want a SidecarError with the file and the repair", verb, err)
				}
			}
			if got, err := os.ReadFile(f.path); err != nil || string(got) != "two" {
				t.Errorf("the content is %q, %v", got, err)
			}
			guardAlone(t, f)
			// The repair works.
			guardMust(t, os.RemoveAll(f.sidecar))
			if _, err := f.Raise(t.Context(), guardStamp(9)); err != nil {
				t.Errorf("after the repair: %v", err)
			}
			guardHas(t, f, 9, "two")
		})
	}
}

func TestGuardSidecarCutShortAfterItsFirstMarkIsNoticed(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 1, "one")
	image, err := os.ReadFile(f.sidecar)
	guardMust(t, err)
	for _, n := range []int{1, 10, 100, slotSize - 1, slotSize, slotSize + 1, slotSize + 100, slotInside - 1, slotInside, slotInside + 1, slotFile - 1} {
		if s, _, err := slotNewest(image[:n]); err == nil {
			t.Errorf("cut to %d bytes it reads as %+v", n, s)
		}
	}
}

func TestGuardReaderWhoMeetsBothSlotsBeingWrittenLooksAgain(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 1, "one")
	whole, err := os.ReadFile(f.sidecar)
	guardMust(t, err)
	torn := slices.Clone(whole)
	torn[50]++
	torn[slotSize+50]++
	looks := 0
	f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error {
		if s.Op != "open" {
			return nil
		}
		if looks++; looks < 3 {
			return os.WriteFile(f.sidecar, torn, 0o600)
		}
		return os.WriteFile(f.sidecar, whole, 0o600)
	}}
	if mark, err := f.Mark(t.Context()); err != nil || mark.Token != 1 || looks != 3 {
		t.Errorf("%+v, %v after %d looks; want the mark as soon as it can be read", mark, err, looks)
	}
}

func TestGuardOneDamagedSlotIsSurvived(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	for token := fence.Token(1); token < 6; token++ {
		guardPut(t, f, token, "before")
		image, err := os.ReadFile(f.sidecar)
		guardMust(t, err)
		newest, _, err := slotNewest(image)
		guardMust(t, err)
		image[slotSize-int(newest.offset())+50]++ // in the older slot
		guardMust(t, os.WriteFile(f.sidecar, image, 0o600))
		guardHas(t, f, token, "before")
	}
}

func TestGuardEmptySidecarIsNoMarkYet(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardMust(t, os.WriteFile(f.sidecar, nil, 0o600))
	if mark, err := f.Mark(t.Context()); err != nil || !mark.IsZero() {
		t.Errorf("%+v, %v", mark, err)
	}
	guardPut(t, f, 1, "one")
	guardHas(t, f, 1, "one")
}

func TestGuardSidecarRemovedWhileWaitingForItIsMadeAnew(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 5, "five")
	// Between opening the sidecar and locking it, one process removes it and
	// another makes a new one.
	once := false
	f.fs = &fsys.Faulty{FS: fsys.OS{}, After: func(s fsys.Step) error {
		if s.Op == "open" && s.Path == f.sidecar && !once {
			once = true
			guardMust(t, os.Remove(f.sidecar))
			guardPut(t, guardOpen(t, f.path), 7, "seven")
		}
		return nil
	}}
	if _, err := f.Raise(t.Context(), guardStamp(6)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("%v; want the new sidecar to count", err)
	}
	guardHas(t, f, 7, "seven")
}

func TestGuardKnowsNetworkMounts(t *testing.T) {
	for _, m := range []mount.Mount{
		{Name: "nfs", Kind: mount.Network}, {Name: "fuse", Kind: mount.Foreign}, {Name: "macfuse", Kind: mount.Foreign},
	} {
		if !isRemote(m) {
			t.Errorf("%s is taken for a local disk", m.Name)
		}
	}
	for _, m := range []mount.Mount{
		{Name: "ext4", Kind: mount.Local},
		{Name: "tmpfs", Kind: mount.Memory},
		{Name: "vfat", Kind: mount.Foreign},
		{Name: "overlay", Kind: mount.Overlay},
		{},
	} {
		if isRemote(m) {
			t.Errorf("%s is taken for a network mount", m.Name)
		}
	}
}

// noLinks fails every link, as a file system without hard links does.
func noLinks(s fsys.Step) error {
	if s.Op == "link" {
		return syscall.EPERM
	}
	return nil
}

// TestGuardOnAMountWithoutLinksNeedsPermissionAndLooksAgain: the refusal says
// what to use instead.
func TestGuardOnAMountWithoutLinksNeedsPermissionAndLooksAgain(t *testing.T) {
	path := filepath.Join(guardTemp(t), "artifact")
	f := guardOpen(t, path)
	f.remote, f.fs = true, &fsys.Faulty{FS: fsys.OS{}, Before: noLinks}
	_, err := f.Write(t.Context(), guardStamp(1), strings.NewReader("one"))
	if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "network=allow") {
		t.Errorf("%v, want it refused with the way to allow it", err)
	}
	if _, err := os.Lstat(f.sidecar + chainSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a chain was begun: %v", err)
	}
	guardAlone(t, f)
	f.options.AllowNetwork = true
	if f.Target() != "file://"+path+"?network=allow" {
		t.Errorf("allowed: target %s", f.Target())
	}
	guardPut(t, f, 1, "one") // no other process, so no error
	intrude := func() {
		image, err := os.ReadFile(f.sidecar)
		guardMust(t, err)
		s, _, err := slotNewest(image)
		guardMust(t, err)
		s.generation++
		s.mark.Token += 100
		copy(image[s.offset():], s.encode())
		guardMust(t, os.WriteFile(f.sidecar, image, 0o600))
	}
	f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: noLinks, After: func(s fsys.Step) error {
		if s.Op == "rename" && s.Path == path {
			intrude()
		}
		return nil
	}}
	if _, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("two")); !errors.Is(err, ErrLockNotKept) {
		t.Errorf("another inside at the same time: %v, want ErrLockNotKept", err)
	}
	synced := 0
	f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: noLinks, After: func(s fsys.Step) error {
		if s.Op == "sync" && s.Path == f.sidecar {
			if synced++; synced == 1 {
				intrude()
			}
		}
		return nil
	}}
	if _, err := f.Raise(context.Background(), guardStamp(500)); !errors.Is(err, ErrLockNotKept) {
		t.Errorf("another inside during a raise: %v, want ErrLockNotKept", err)
	}
}
