package dir

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
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/ground"
)

// FileOptions are the choices in opening a guarded file. Nil means all defaults.
type FileOptions struct {
	// LockWait bounds how long a call waits for another process to leave the guard. Default 10 s; negative: not at all.
	LockWait time.Duration
	// AllowNetwork allows files on network and FUSE mounts without hard links.
	// Only locks are left there, and mounts may not keep them between machines.
	// The mark is then looked at again after each change, and a change by another
	// at the same time is reported as ErrLockNotKept: noticed, not prevented.
	// Default false: such files are refused. Where there are hard links, nobody
	// needs it.
	AllowNetwork bool
}

// defaultLockWait is FileOptions.LockWait by default.
const defaultLockWait = 10 * time.Second

// File is a guarded file: each admitted write replaces its content, and readers, who need to know nothing of the guard, see the old content or the new.
//
// Its mark is kept beside it in the sidecar NAME.fence, in two checksummed slots that are written in place and in turn; the sidecar can be read with
// cat, must stay beside the file, and belongs into no backup that is ever restored alone.
//
// The sidecar has the file's owner and group, and lets in those who may write
// the file: a user who could only read it could lock it and keep every writer
// waiting. In a sticky directory, /tmp for example, a sidecar that another user
// has made is refused, unless the file or the directory is that user's.
//
// A write is staged in a hidden file beside the target, ".NAME.croft-stage-" and 16 hex digits, and synced. Then, under an exclusive flock(2) on the sidecar: the
// stamp is checked, the mark advanced and synced, the staged file renamed over the target, the directory synced. So a crash at any point
// leaves the old or the new content whole, and a mark at least as high as every admitted token. The kernel drops the lock of a process that dies; one that is stopped inside keeps
// others out, who get a [*BusyError] with its process id. What a crash leaves staged is removed by the next write once it is an hour old and nobody
// has it open for writing.
//
// An error after the mark was advanced, a full disk for example, leaves the old content under the new mark: the same owner may write again, with the next
// number if its writes are numbered.
//
// Content is replaced, not rewritten: the group and the permission bits of the old file are kept, the owner only when root writes, and extended attributes, ACLs and set-user-id
// bits are not. A file that the caller may not write to is not replaced either. Hard-linked files are refused, because other names would
// keep the old content.
//
// Symbolic links are followed, once, when the file is opened; but not a link
// that another user has made in a sticky directory. After that, every call
// opens the file's directory once, without following a link, and takes each of
// its steps there. A call whose directory is moved away meanwhile ends with an
// error.
//
// On a network mount there is no lock to rely on. There the guard is a chain of
// versions in the folder NAME.fence.d, each made by one link(2), and the file
// is a copy of the committed content for ordinary readers. [File.Open] gives
// what was committed. The copy is refreshed after each commit. If the writer
// dies or stands still in between, the next call repairs it. Where there is
// such a folder, it is used on local disks, too.
//
// All methods are safe for concurrent use. A File holds nothing open between calls.
type File struct {
	path    string // of the artifact, absolute, symbolic links resolved
	folder  string
	sidecar string
	remote  bool // on a network mount
	options FileOptions

	fs   fsys.FS
	turn chan struct{} // held by the call that waits for the lock or has it, so that a process's own callers queue here and do not poll

	sweeping sync.Mutex
	swept    time.Time

	memory chainMemory
	omit   omissions
}

// omissions are checks that tests of the tests leave out.
type omissions struct{ nonce, confirm, repair bool }

var _ guard.Artifact = (*File)(nil)

// OpenFile opens the guard of the file at path, which need not exist yet; its directory must. Nothing is created before the first write, raise or rekey.
func OpenFile(path string, o *FileOptions) (*File, error) {
	return OpenFileOn(fsys.OS{}, path, o)
}

// OpenFileOn is OpenFile on a file system that tests of this module have put between the guard and the real one.
func OpenFileOn(fsy fsys.FS, path string, o *FileOptions) (*File, error) {
	f := &File{fs: fsy, turn: make(chan struct{}, 1)}
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
	m, err := ground.MountOf(f.folder)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("guard %s: %w", f.path, err)
	}
	f.remote = isRemote(m)
	return f, nil
}

// guardSuffix makes a sidecar's name from its artifact's.
const guardSuffix = ".fence"

func init() { guard.Register("file", guardOpenURL) }

// guardOpenURL opens file:///absolute/path, with ?network=allow for FileOptions.AllowNetwork, or a plain path.
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
	var o FileOptions
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("what follows the question mark cannot be read; escape ? as %%3F if it belongs to the name")
	}
	for name, values := range query {
		if name != "network" || len(values) != 1 || values[0] != "allow" {
			return bad("unknown option %q; the only one is network=allow; escape ? as %%3F if it belongs to the name", name)
		}
		o.AllowNetwork = true
	}
	f, err := OpenFile(u.Path, &o)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Target is the file's absolute path, as others need it to open the same guard; a URL if that takes an option.
func (f *File) Target() string {
	if !f.remote || !f.options.AllowNetwork {
		return f.path
	}
	return (&url.URL{Scheme: "file", Path: f.path, RawQuery: "network=allow"}).String()
}

// Close does nothing: a File holds nothing open between calls.
func (f *File) Close() error { return nil }

// Mark reads the mark without taking the lock: it answers while another process is inside.
func (f *File) Mark(ctx context.Context) (fence.Mark, error) {
	s, err := f.state(ctx)
	return s.mark, err
}

// Rekeyed tells of the last Rekey. It takes no lock.
func (f *File) Rekeyed(ctx context.Context) (Rekeyed, error) {
	s, err := f.state(ctx)
	return s.rekeyed, err
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
	if err := stamp.CheckNow(); err != nil {
		return fence.Mark{}, err
	}
	return f.change(ctx, func(s slotState) (slotState, error) {
		var err error
		s.mark, err = s.mark.Raise(stamp)
		return s, err
	})
}

// Rekey moves the file to another key; the sidecar keeps who did so, when and why, until the next Rekey.
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
	if mark, err := f.Mark(ctx); err != nil || mark.IsZero() { // to enter would make a sidecar
		if err == nil {
			_, err = mark.Reset(floor, time.Now())
		}
		return mark, err
	}
	return f.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as a law says, and keeps who did so and why.
func (f *File) move(ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error)) (fence.Mark, error) {
	return f.change(ctx, func(s slotState) (slotState, error) {
		s.rekeyed = Rekeyed{From: s.mark.Key, Actor: actor, Note: note, At: time.Now()}
		var err error
		s.mark, err = law(s.mark)
		return s, err
	})
}

// change moves the mark under the lock, and nothing else. A mark that stays is written all the same: what a process that died here left behind may not have
// reached the disk.
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

// guardResolve makes a path absolute and follows symbolic links, the last element's too; that may lead to a file that does not exist yet. Nothing is cleaned
// before links are followed: "link/../x" is where the kernel finds it.
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
			return "", fmt.Errorf("%w target %s: its directory %s does not exist; create it first: %w", fence.ErrInvalid, path, filepath.Clean(parent), err)
		}
		if err != nil {
			return "", fmt.Errorf("target %s: %w", path, err)
		}
		full = filepath.Join(folder, base)
		link, err := os.Readlink(full)
		if err != nil {
			return full, nil // no link; whatever else may be wrong with it, inspect will say
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
// when a shell writes to it (fs.protected_symlinks). It looks at a link that
// was read already: its maker cannot put one of root's in its place.
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
		return fmt.Errorf("%w target %s: user %d has made it a symbolic link, in a directory where every user can "+
			"make files; see where it leads, and name that file or remove the link", fence.ErrInvalid, link, guardUser(info))
	}
	return nil
}
