package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/mount"
)

// cleanPath makes a path absolute. It refuses names that SQLite or its driver
// would not take for a file's name. Function connections escapes the rest.
func cleanPath(path string) (string, error) {
	bad := func(why string) error { return fmt.Errorf("%w store %q: %s", fence.ErrInvalid, path, why) }
	switch {
	case path == "":
		return "", bad("the path is empty; name a file")
	case path == "~" || strings.HasPrefix(path, "~/"):
		return "", bad("nobody has put your home directory in the place of ~; write the whole path")
	case strings.ContainsRune(path, 0):
		return "", bad("it has a NUL byte")
	case filepath.Base(path) == ":memory:" || strings.HasPrefix(path, "file:"):
		return "", bad("leases live in a file that all contenders can open; name one by its plain path")
	case strings.HasSuffix(path, "/"):
		return "", bad("it names a directory; name a file in it")
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("store %s: %w; write the whole path", path, err)
	}
	return whole, nil
}

// making is locked while this process makes a file. Closing any descriptor of a
// file drops all locks that the process has on it, so nobody may use the file
// before its maker has closed it. locate therefore waits for this lock before
// it returns a file.
var making sync.Mutex

// locate finds the file that a path leads to. If mayMake is set, it makes a
// missing file, empty and for the user alone. It refuses files and folders that
// cannot keep a store's promises. It opens no file that is already there:
// closing it again would drop SQLite's locks.
func locate(path string, o *Options, mayMake bool) (file string, info fs.FileInfo, err error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w store %s: %s", fence.ErrInvalid, path, fmt.Sprintf(format, args...))
	}
	if service, where := mount.SyncedBy(fsys.OS{}, path); service != "" {
		return "", nil, refuse("%s copies the files there between machines (%s), while they change and one by one: "+
			"two machines would hold a lease at once, and the copy of a database in use is no database; "+
			"choose a folder that nothing copies", service, where)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", nil, refuse("its folder cannot be reached (%v); make it first: mkdir -p %s", err, filepath.Dir(path))
	}
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return "", nil, refuse("%s is not a folder; choose another", folder)
	}
	if m, err := mount.Of(folder); err == nil && !o.AllowNetwork {
		if reason := unfit(m); reason != "" {
			return "", nil, refuse("%s", reason)
		}
	}
	file = filepath.Join(folder, filepath.Base(path))
	info, err = os.Lstat(file)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if file, err = filepath.EvalSymlinks(file); err != nil {
			return "", nil, refuse("it is a symbolic link that leads nowhere (%v); name the file itself", err)
		}
		return locate(file, o, false) // check the folder of the file itself, too
	}
	if errors.Is(err, fs.ErrNotExist) && mayMake {
		if err = create(file); err == nil {
			info, err = os.Lstat(file)
		}
	} else {
		made()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, refuse("there is no such file")
	case err != nil:
		return "", nil, fmt.Errorf("store %s: %w; give this user the permission to read and write the file and its "+
			"folder, or choose another", path, err)
	case info.IsDir():
		return "", nil, refuse("it is a directory; name a file in it")
	case !info.Mode().IsRegular():
		return "", nil, refuse("it is not a regular file")
	case links(info) > 1:
		return "", nil, refuse("it has %d hard links, and SQLite keeps its journal beside one name: opened by two, "+
			"it would be damaged; make it a file of its own", links(info))
	case isAbandoned(info):
		return "", nil, abandoned(file)
	case mountedAlone(file, folder):
		return "", nil, refuse("the file is mounted by itself, without its folder, as containers do: " +
			"its log would lie beside this name, and those who have the file under another would not see it " +
			"and damage it; mount the folder")
	}
	return file, info, nil
}

// unfit says why a database must not lie on a mount. It returns "" if it may.
func unfit(m mount.Mount) string {
	if m.Kind != mount.Network && m.Name != "fuse" && m.Name != "macfuse" && m.Name != "osxfuse" {
		return ""
	}
	return fmt.Sprintf("it lies on a network or FUSE mount (%s), where SQLite's locks and shared memory do not hold "+
		"between machines: two would hold a lease at once, and the file would be damaged; "+
		"choose a local disk, or a store with a server. "+
		"If only one machine ever opens it, network=allow in the URL takes it", m.Name)
}

// made waits while another goroutine of this process makes a file.
func made() {
	making.Lock()
	making.Unlock() //nolint:gocritic,staticcheck // only to wait
}

// create makes an empty file for the user alone, whatever the umask is. SQLite
// gives the files beside it the same permissions. It is no error if the file is
// there already.
func create(file string) error {
	making.Lock()
	defer making.Unlock()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}
