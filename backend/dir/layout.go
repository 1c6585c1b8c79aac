package dir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
)

// formatVersion is the format that this package writes. It refuses stores with
// a newer format.
const formatVersion = 1

const markerName = "croft-store.json"

// Bounds for reading: other users may have put files of any size there.
const (
	markerMost = 64 << 10
	recordMost = 1 << 20 // the largest record that the law allows takes less
)

// tempNames matches the names of the files and folders in the staging folder
// that the store may remove.
var tempNames = regexp.MustCompile(`^croft-(new|born|shard|dropped|probe|acts?)-[0-9a-f]{16}(-link)?$`)

func isTemp(name string) bool { return tempNames.MatchString(name) }

// isAct reports whether a file in the acts folder belongs to the store.
func isAct(name string) bool { return isHex(name, 64) }

// layout has the paths in a store's directory, and the permissions of the files
// and folders that the store makes.
type layout struct {
	fs       fsys.Tree // others may write below root, so it follows no link there
	root     string
	keys     string
	tmp      string
	acts     string // operators' acts; made when first needed
	dirMode  fs.FileMode
	fileMode fs.FileMode
	// shared is true if the directory gives permissions to others. New files
	// and folders then get the directory's permissions, whatever the umask
	// says.
	shared bool
	// device is the directory's file system, fileDevice that of files in it.
	// They differ only on some layered file systems.
	device, fileDevice uint64
}

// shard is the folder that contains a key's folder.
func (l *layout) shard(hash string) string { return filepath.Join(l.keys, hash[:2]) }

// home is a key's folder. It holds the folder of the key's present life, or
// nothing.
func (l *layout) home(hash string) string { return filepath.Join(l.shard(hash), hash) }

// temp returns a fresh name in the staging folder.
func (l *layout) temp(kind string) string {
	return filepath.Join(l.tmp, fmt.Sprintf("croft-%s-%016x", kind, rand.Uint64()))
}

// newLayout makes the directory if it is missing, and the folders in it. It
// refuses a path that cannot be a store.
func newLayout(fsy fsys.FS, root string) (*layout, error) {
	l := &layout{
		fs: fsys.Below(fsy, root), root: root,
		keys: filepath.Join(root, "keys"), tmp: filepath.Join(root, "tmp"),
		acts: filepath.Join(root, "acts"),
	}
	if err := l.makeRoot(); err != nil {
		return nil, err
	}
	info, err := l.fs.Stat(root)
	switch {
	case err != nil:
		return nil, l.explain(err)
	case !info.IsDir():
		return nil, fmt.Errorf("%w store %s: it is not a directory; "+
			"name a directory, or a path where one can be made", fence.ErrInvalid, root)
	}
	l.device = device(info)
	perm := info.Mode().Perm()
	l.shared = perm&0o077 != 0
	l.dirMode, l.fileMode = 0o700, 0o600
	if l.shared {
		// Not the sticky bit: users could not tidy up after each other.
		l.dirMode, l.fileMode = perm|info.Mode()&fs.ModeSetgid, perm&0o666
	}
	if err := l.initialize(); err != nil {
		return nil, err
	}
	return l, nil
}

// makeRoot makes the directory and its missing parents, for the owner alone.
func (l *layout) makeRoot() error {
	var missing []string
	for dir := l.root; ; dir = filepath.Dir(dir) {
		_, err := l.fs.Stat(dir)
		if err == nil {
			break
		}
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w store %s: something above it is not a directory; "+
				"name a directory, or a path where one can be made", fence.ErrInvalid, l.root)
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return l.explain(err)
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := l.fs.Mkdir(missing[i], 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return l.explain(err)
		}
		if err := l.syncDir(filepath.Dir(missing[i])); err != nil {
			return l.explain(err)
		}
	}
	return nil
}

// initialize makes the missing folders inside the directory, and the marker.
// Several processes may do it at once.
//
// The marker comes last, when everything else is safe from a power cut. So a
// process that finds the marker need not sync the folders again.
func (l *layout) initialize() error {
	if err := l.readMarker(); !errors.Is(err, fs.ErrNotExist) {
		if err != nil || l.isInitialized() {
			return err
		}
		// Somebody wiped the folders and left the marker.
		if err := l.fs.Remove(filepath.Join(l.root, markerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return l.explain(err)
		}
	}
	if err := l.mkdirs(l.tmp, l.keys); err != nil {
		return err
	}
	if err := l.syncAbove(); err != nil {
		return err
	}
	text := fmt.Sprintf("{\"format\":%d,\"what\":\"a croft lease store: do not edit, copy or sync these files; "+
		"look at it with croft ls, croft show, croft doctor\"}\n", formatVersion)
	temp, _, err := l.stage([]byte(text))
	if err != nil {
		return l.explain(err)
	}
	defer l.fs.Remove(temp)
	if err := l.fs.Link(temp, filepath.Join(l.root, markerName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return l.noLink(err)
	}
	return l.readMarker()
}

func (l *layout) isInitialized() bool {
	for _, path := range []string{l.tmp, l.keys} {
		if _, err := l.fs.Lstat(path); err != nil {
			return false
		}
	}
	return true
}

// syncAbove makes the names in the directory durable, and the names that lead
// to it: their maker may have been killed before it synced them. It also syncs
// the parents on the same file system, where it may.
func (l *layout) syncAbove() error {
	if err := l.syncDir(l.root); err != nil {
		return l.explain(err)
	}
	for dir := l.root; dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		if info, err := l.fs.Stat(dir); err != nil || device(info) != l.device {
			break
		}
		_ = l.syncDir(dir)
	}
	return nil
}

func (l *layout) readMarker() error {
	path := filepath.Join(l.root, markerName)
	data, err := l.fs.ReadFile(path, markerMost)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if foreignReason(err) != "" {
		return fmt.Errorf("%w store %s: %w, where the store's marker belongs; see who put it there, and remove it: "+
			"it is made anew", fence.ErrInvalid, l.root, err)
	}
	if err != nil {
		return l.explain(err)
	}
	var marker struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(data, &marker) != nil || marker.Format < 1 {
		return fmt.Errorf("%w store %s: %s is damaged; "+
			"if this is a croft store, move the file away and it is made anew", fence.ErrInvalid, l.root, path)
	}
	if marker.Format > formatVersion {
		return fmt.Errorf("%w store %s: it has format %d, this croft knows %d; use a newer croft",
			fence.ErrInvalid, l.root, marker.Format, formatVersion)
	}
	return nil
}

func (l *layout) mkdirs(paths ...string) error {
	for _, path := range paths {
		if _, err := l.fs.Lstat(path); err == nil {
			continue
		}
		if err := l.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return l.explain(err)
		}
	}
	return nil
}

// mkdir makes one folder with the store's permissions.
func (l *layout) mkdir(path string) error {
	if err := l.fs.Mkdir(path, l.dirMode.Perm()); err != nil {
		return err
	}
	if l.shared {
		return l.fs.Chmod(path, l.dirMode)
	}
	return nil
}

// installFolder makes a folder that has its permissions from the moment it
// appears. Other users of a shared store never find it without them.
func (l *layout) installFolder(path, kind string) error {
	if !l.shared {
		return l.mkdir(path)
	}
	ready := l.temp(kind)
	err := l.mkdir(ready)
	if err == nil {
		err = l.fs.Rename(ready, path)
	}
	if err != nil {
		_ = l.fs.Remove(ready)
	}
	return err
}

// write makes a file with the store's permissions, and syncs its content.
func (l *layout) write(path string, data []byte) (fs.FileInfo, error) {
	return l.writeFile(path, data, fsys.File.Sync)
}

// writeFile makes a file with the store's permissions, and calls sync on it.
func (l *layout) writeFile(
	path string, data []byte, sync func(fsys.File) error,
) (fs.FileInfo, error) {
	f, err := l.fs.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, l.fileMode)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	if err == nil && l.shared {
		err = f.Chmod(l.fileMode)
	}
	if err == nil {
		err = sync(f)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return info, err
}

// stage writes and syncs a file in the staging folder, and returns its path. If
// that fails, it leaves nothing behind.
func (l *layout) stage(data []byte) (string, fs.FileInfo, error) {
	path := l.temp("new")
	info, err := l.write(path, data)
	if err != nil {
		_ = l.fs.Remove(path)
		return "", nil, err
	}
	return path, info, nil
}

// syncDir makes the entries of a folder durable, if its file system can.
func (l *layout) syncDir(path string) error {
	err := l.fs.SyncDir(path)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // a network or FUSE file system without this call: it syncs by itself, or not at all
	}
	return err
}

// checkMount checks that the directory is still on the file system where it was
// opened. A mount that is gone leaves an empty folder behind, in which every
// key would look free.
func (l *layout) checkMount() error {
	info, err := l.fs.Stat(l.root)
	if errors.Is(err, fs.ErrNotExist) {
		// The directory was removed. Its parent is on the same file system,
		// unless
		// the directory was a mount.
		info, err = l.fs.Stat(filepath.Dir(l.root))
	}
	if err != nil {
		return l.explain(err)
	}
	if device(info) != l.device {
		return l.unmounted()
	}
	return nil
}

func (l *layout) unmounted() error {
	return fmt.Errorf("store %s: another file system is there than when it was opened; "+
		"was it unmounted? Mount it again, or start this program again", l.root)
}

// reinitialize makes the folders again after somebody wiped the open store.
func (l *layout) reinitialize() error {
	if err := l.checkMount(); err != nil {
		return err
	}
	if err := l.fs.Mkdir(l.root, l.dirMode.Perm()); err == nil && l.shared {
		if err := l.fs.Chmod(l.root, l.dirMode); err != nil {
			return l.explain(err)
		}
	}
	return l.initialize()
}
