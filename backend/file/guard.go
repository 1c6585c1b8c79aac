package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/internal/mount"
)

// Options are the choices in opening a guarded file. Nil means all
// defaults.
type Options struct {
	// LockWait bounds how long a call waits for another process to leave the
	// guard. Default 10 s; negative: not at all.
	LockWait time.Duration
	// AllowNetwork allows files on network and FUSE mounts without hard links.
	// Only locks are left there, and mounts may not keep them between machines.
	// Default false: such files are refused. Mounts with hard links need no
	// permission.
	//
	// The guard then reads the mark again after each change. If another machine
	// changed it at the same time, the call returns ErrLockNotKept. So a second
	// writer is noticed, not prevented.
	AllowNetwork bool
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

// defaultLockWait is Options.LockWait by default.
const defaultLockWait = 10 * time.Second

// File is a guarded file. Each admitted write replaces its content. Readers see
// the old content or the new, and need to know nothing of the guard.
//
// # Sidecar
//
// The sidecar NAME.fence beside the file keeps its mark, in two checksummed
// slots that are written in place and in turn. You can read it with cat. It
// must stay beside the file. Never restore it alone from a backup.
//
// The sidecar has the file's owner and group. Only users who may write the file
// can open it: flock(2) asks for no more than an open file, so a user who may
// only read could keep every writer waiting. In a sticky directory, /tmp for
// example, the guard refuses a sidecar that another user has made, unless the
// file or the directory belongs to that user.
//
// # Writing
//
// A write goes into a hidden file beside the target, ".NAME.croft-stage-" and
// 16 hex digits, which is then synced. The rest happens under an exclusive
// flock(2) on the sidecar:
//
//  1. The guard checks the stamp.
//  2. It advances the mark and syncs it.
//  3. It renames the staged file over the target.
//  4. It syncs the directory.
//
// So a crash at any point leaves the old or the new content whole, and a mark
// at least as high as every admitted token.
//
// The kernel drops the lock of a process that dies. A process that is stopped
// inside keeps others out. They get a [*BusyError] with its process id.
//
// After a crash, the next write removes the staged file, once it is an hour old
// and no process has it open for writing.
//
// An error after the mark was advanced, a full disk for example, leaves the old
// content under the new mark. The same owner may write again, with the next
// number if its writes are numbered.
//
// # Permissions
//
// A write replaces the file and does not rewrite it. The new file keeps the
// group and the permission bits of the old one. It keeps the owner only when
// root writes. It does not keep extended attributes, ACLs and set-user-id bits.
// The guard does not replace a file that the caller may not write to. It
// refuses hard-linked files, because other names would keep the old content.
//
// # Links
//
// Open follows symbolic links, but not a link that another user has made in
// a sticky directory. After that, every call opens the file's directory once,
// without following a link, and takes each of its steps there. If the directory
// is moved away meanwhile, the call ends with an error.
//
// # Network mounts
//
// On a network mount there is no lock to rely on. There the guard is a chain of
// versions in the folder NAME.fence.d, each made by one link(2), and the file
// is a copy of the committed content for ordinary readers. [File.Open] gives
// the committed content. The copy is refreshed after each commit. If the writer
// dies or stands still in between, the next call repairs it. If there is such
// a folder, the guard uses it on local disks, too.
//
// All methods are safe for concurrent use. A File holds nothing open between
// calls.
type File struct {
	path    string // of the artifact, absolute, symbolic links resolved
	folder  string
	sidecar string
	remote  bool // on a network mount
	options Options

	fs fsys.FS
	// mutex is held by the call that waits for the lock or has it. So this
	// process's other callers queue here and do not poll.
	mutex chan struct{}

	sweeping sync.Mutex // protects swept; held during a sweep
	swept    time.Time

	memory chainMemory
	omit   omissions
}

// omissions are checks that tests of the tests leave out.
type omissions struct{ nonce, confirm, repair bool }

var _ guard.Artifact = (*File)(nil)

// Open opens the guard of the file at path. The file need not exist yet;
// its directory must. Open creates nothing: the first write, raise or rekey
// does.
func Open(path string, o *Options) (*File, error) {
	return openOn(fsys.OS{}, path, o)
}

// openOn is Open on another file system.
func openOn(fsy fsys.FS, path string, o *Options) (*File, error) {
	f := &File{fs: fsy, mutex: make(chan struct{}, 1)}
	if o != nil {
		f.options = *o
	}
	if f.options.LockWait == 0 {
		f.options.LockWait = defaultLockWait
	}
	if err := guardPlatform(); err != nil {
		return nil, err
	}
	var err error
	if f.path, err = guardResolve(path); err != nil {
		return nil, err
	}
	f.folder, f.sidecar = filepath.Dir(f.path), f.path+guardSuffix
	if err := f.checkName(); err != nil {
		return nil, err
	}
	v, err := f.visit()
	if err != nil {
		return nil, err
	}
	defer v.leave()
	if _, err := v.inspect(); err != nil {
		return nil, err
	}
	m, err := mount.Of(f.folder)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("guard %s: %w", f.path, err)
	}
	f.remote = isRemote(m)
	return f, nil
}

// guardSuffix is the end of a sidecar's name, after the artifact's name.
const guardSuffix = ".fence"

func init() {
	guard.Register("file", guardOpenURL)
	inject.File = func(path string, fsy fsys.FS) (guard.Artifact, error) { return openOn(fsy, path, nil) }
}

// guardOpenURL opens file:///absolute/path or a plain path. The parameter
// network=allow sets Options.AllowNetwork.
func guardOpenURL(_ context.Context, u *url.URL) (guard.Guard, error) {
	bad := func(format string, args ...any) (guard.Guard, error) {
		return nil, fmt.Errorf("%w target %q: %s", fence.ErrInvalid, u.Redacted(), fmt.Sprintf(format, args...))
	}
	if u.Host != "" && u.Host != "localhost" {
		return bad("a file has no host; write file:///absolute/path, or a plain path if it is relative")
	}
	if u.User != nil || u.Fragment != "" {
		return bad("a file's URL has a path and nothing else; escape # as %%23")
	}
	var o Options
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("what follows the question mark cannot be read; escape ? as %%3F if it belongs to the name")
	}
	for name, values := range query {
		if name != "network" || len(values) != 1 || values[0] != "allow" {
			return bad("unknown option %q; the only one is network=allow; "+
				"escape ? as %%3F if it belongs to the name", name)
		}
		o.AllowNetwork = true
	}
	f, err := Open(u.Path, &o)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Target is the file's absolute path, with which others open the same guard. It
// is a URL if the file lies on a network mount.
func (f *File) Target() string {
	if !f.remote || !f.options.AllowNetwork {
		return f.path
	}
	return (&url.URL{Scheme: "file", Path: f.path, RawQuery: "network=allow"}).String()
}

// Close does nothing: a File holds nothing open between calls.
func (f *File) Close() error { return nil }

// Mark reads the mark without taking the lock. So it answers while another
// process is inside.
func (f *File) Mark(ctx context.Context) (fence.Mark, error) {
	s, err := f.state(ctx)
	return s.mark, err
}

// Rekeyed tells of the last Rekey. It takes no lock.
func (f *File) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	s, err := f.state(ctx)
	return s.rekeyed, err
}

// Counts tells how many writes were admitted. It takes no lock.
func (f *File) Counts(ctx context.Context) (guard.Counts, error) {
	s, err := f.state(ctx)
	return guard.Counts{Writes: s.writes, Changed: s.changed}, err
}

// state reads the sidecar, or the newest version of the chain.
func (f *File) state(ctx context.Context) (slotState, error) {
	v, err := f.visit()
	if err != nil {
		return slotState{}, err
	}
	defer v.leave()
	c, err := v.chain()
	if err != nil {
		return slotState{}, err
	}
	if c == nil {
		return v.look(ctx)
	}
	newest, err := c.state(ctx)
	if err == nil {
		c.repair(ctx)
	}
	return newest.slot(), err
}

// Raise advances the mark without writing. The file need not exist.
func (f *File) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := f.options.Keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	return f.change(ctx, func(s slotState) (slotState, error) {
		var err error
		s.mark, err = s.mark.Raise(stamp)
		return s, err
	})
}

// Rekey moves the file to another key. The sidecar keeps who did so, when and
// why, until the next Rekey.
func (f *File) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return f.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark that was made up. The sidecar keeps who did so, as
// after a Rekey.
func (f *File) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	if mark, err := f.Mark(ctx); err != nil || mark.IsZero() { // entering would make a sidecar
		if err == nil {
			_, err = mark.Reset(floor, time.Now())
		}
		return mark, err
	}
	return f.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move changes the mark by law, and records actor and note.
func (f *File) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (fence.Mark, error) {
	return f.change(ctx, func(s slotState) (slotState, error) {
		s.rekeyed = guard.Rekeyed{From: s.mark.Key, Actor: actor, Note: note, At: time.Now()}
		var err error
		s.mark, err = law(s.mark)
		return s, err
	})
}

// change changes the state under the lock. It writes even a mark that stays the
// same: a process that died here may have left it unsynced.
func (f *File) change(ctx context.Context, to func(slotState) (slotState, error)) (fence.Mark, error) {
	v, err := f.visit()
	if err != nil {
		return fence.Mark{}, err
	}
	defer v.leave()
	c, err := v.chainFor(ctx)
	if err != nil {
		return fence.Mark{}, err
	}
	if c != nil {
		next, err := c.change(ctx, to)
		return next.Mark, err
	}
	in, err := v.enter(ctx)
	if err != nil {
		return fence.Mark{}, err
	}
	defer in.leave()
	next, err := to(in.state)
	if err != nil {
		return in.state.mark, err
	}
	if err := in.advance(next); err != nil {
		return in.state.mark, err
	}
	return in.state.mark, in.recheck()
}

// guardResolve makes a path absolute and follows symbolic links, also that of
// the last element. The result need not exist. It cleans nothing before it
// follows links: "link/../x" is where the kernel finds it.
func guardResolve(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w target: the path is empty; name the file to guard", fence.ErrInvalid)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%w target %q: it has a NUL byte", fence.ErrInvalid, path)
	}
	full := path
	if !filepath.IsAbs(full) {
		here, err := os.Getwd()
		if err != nil {
			return "", fmt.Errorf("target %s: finding the directory it is relative to: %w", path, err)
		}
		full = here + "/" + full
	}
	for range 40 {
		cut := strings.LastIndexByte(full, '/') + 1
		parent, base := full[:cut], full[cut:]
		if base == "" || base == "." || base == ".." {
			return "", fmt.Errorf("%w target %s: it names a directory; name a file in it", fence.ErrInvalid, path)
		}
		folder, err := filepath.EvalSymlinks(parent)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%w target %s: its directory %s does not exist; create it first: %w",
				fence.ErrInvalid, path, filepath.Clean(parent), err)
		}
		if err != nil {
			return "", fmt.Errorf("target %s: %w", path, err)
		}
		full = filepath.Join(folder, base)
		link, err := os.Readlink(full)
		if err != nil {
			return full, nil // not a link; inspect says what else may be wrong
		}
		if err := guardFollow(full, folder); err != nil {
			return "", err
		}
		if full = link; !filepath.IsAbs(link) {
			full = folder + "/" + link
		}
	}
	return "", fmt.Errorf("%w target %s: too many symbolic links; do they lead in a circle?", fence.ErrInvalid, path)
}

// guardFollow refuses a link that another user may have planted, as Linux does
// when a shell writes to it (fs.protected_symlinks). The caller has
// already read the link: its maker cannot put a link of root's in its place.
func guardFollow(link, folder string) error {
	there, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("target %s: %w", link, err)
	}
	info, err := os.Lstat(link)
	if err != nil {
		return fmt.Errorf("target %s: %w", link, err)
	}
	if planted(info, there) {
		return fmt.Errorf("%w target %s: user %d has made it a symbolic link, "+
			"in a directory where every user can make files; "+
			"see where it leads, and name that file or remove the link", fence.ErrInvalid, link, guardUser(info))
	}
	return nil
}
