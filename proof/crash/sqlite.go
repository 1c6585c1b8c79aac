//go:build linux || darwin

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// SQLite reaches the file system through a table of functions, its VFS.
// RecordSQLite registers a VFS in front of the default one. It passes all calls
// on, and tells a recorder of changes. It does not record the shared memory of
// a write-ahead log: a crash does not keep it, and SQLite makes it anew.

// shim is the VFS in front. The process has one; a file's path says which
// recorder it belongs to.
var shim struct {
	once  sync.Once
	err   error
	below lib.Tsqlite3_vfs // the functions of the default VFS

	mu        sync.Mutex
	recorders []*Recorder
	files     map[uintptr]*sqliteFile
	methods   map[uintptr]uintptr // from a file's table of functions to the one in front of it
}

// sqliteFile is an open SQLite file below a recorder's folder.
type sqliteFile struct {
	r     *Recorder
	rel   string
	node  int
	below *lib.Tsqlite3_io_methods
}

// RecordSQLite records the changes of all SQLite databases below the recorder's
// folder, from now on and in the whole process.
func RecordSQLite(r *Recorder) error {
	shim.once.Do(func() { shim.err = install() })
	shim.mu.Lock()
	defer shim.mu.Unlock()
	shim.recorders = append(shim.recorders, r)
	return shim.err
}

func install() error {
	tls := libc.NewTLS()
	found := lib.Xsqlite3_vfs_find(tls, 0)
	if found == 0 {
		return fmt.Errorf("crash: SQLite has no default VFS")
	}
	shim.below = *at[lib.Tsqlite3_vfs](found)
	shim.files, shim.methods = map[uintptr]*sqliteFile{}, map[uintptr]uintptr{}
	front := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(shim.below)))
	name, err := libc.CString("croft-crash")
	if err != nil {
		return err
	}
	vfs := at[lib.Tsqlite3_vfs](front)
	*vfs = shim.below
	vfs.FzName, vfs.FpNext = name, 0
	vfs.FxOpen, vfs.FxDelete = pointer(sqliteOpen), pointer(sqliteDelete)
	// SQLite syncs a folder deep inside, after opening it with this call.
	call, err := libc.CString("openDirectory")
	if err != nil {
		return err
	}
	folderOpener = function[func(*libc.TLS, uintptr, uintptr) uintptr](shim.below.FxGetSystemCall)(tls, found, call)
	if rc := function[func(*libc.TLS, uintptr, uintptr, uintptr) int32](shim.below.FxSetSystemCall)(
		tls, found, call, pointer(sqliteOpenFolder),
	); rc != lib.SQLITE_OK {
		return fmt.Errorf("crash: SQLite does not let its calls be watched: %d", rc)
	}
	if rc := lib.Xsqlite3_vfs_register(tls, front, 1); rc != lib.SQLITE_OK {
		return fmt.Errorf("crash: SQLite takes no other VFS: %d", rc)
	}
	return nil
}

var folderOpener uintptr

// at returns a pointer to the C object at an address.
func at[T any](address uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address))) }

// pointer turns a Go function into an address that SQLite can call. function
// turns such an address back into a Go function.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func function[F any](address uintptr) F { return *(*F)(unsafe.Pointer(&address)) }

// recorderOf returns the recorder whose folder has the path, or nil.
func recorderOf(path string) (r *Recorder, rel string) {
	if path == "" {
		return nil, ""
	}
	shim.mu.Lock()
	defer shim.mu.Unlock()
	for _, r := range shim.recorders {
		if rel, mine := r.below(path); mine {
			return r, rel
		}
	}
	return nil, ""
}

func text(address uintptr) string {
	if address == 0 {
		return ""
	}
	return libc.GoString(address)
}

func sqliteOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) (rc int32) {
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](shim.below.FxOpen)
	r, rel := recorderOf(text(name))
	if r == nil {
		return open(tls, vfs, name, file, flags, out)
	}
	_ = r.do(func() error { rc = open(tls, vfs, name, file, flags, out); return failed(rc) }, func() {
		f := &sqliteFile{
			r: r, rel: rel, node: r.opened(rel, true, false),
			below: at[lib.Tsqlite3_io_methods](at[lib.Tsqlite3_file](file).FpMethods),
		}
		shim.mu.Lock()
		defer shim.mu.Unlock()
		shim.files[file] = f
		at[lib.Tsqlite3_file](file).FpMethods = inFront(tls, at[lib.Tsqlite3_file](file).FpMethods)
	})
	return rc
}

// inFront returns a table of functions that records changes and passes them on
// to another table.
func inFront(tls *libc.TLS, below uintptr) uintptr {
	if shim.methods[below] == 0 {
		front := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := at[lib.Tsqlite3_io_methods](front)
		*m = *at[lib.Tsqlite3_io_methods](below)
		m.FxWrite, m.FxTruncate, m.FxSync, m.FxClose =
			pointer(sqliteWrite), pointer(sqliteTruncate), pointer(sqliteSync), pointer(sqliteClose)
		shim.methods[below] = front
	}
	return shim.methods[below]
}

func failed(rc int32) error {
	if rc == lib.SQLITE_OK {
		return nil
	}
	return fmt.Errorf("sqlite: %d", rc)
}

func fileAt(file uintptr) *sqliteFile {
	shim.mu.Lock()
	defer shim.mu.Unlock()
	return shim.files[file]
}

func sqliteWrite(tls *libc.TLS, file, data uintptr, n int32, off int64) (rc int32) {
	f := fileAt(file)
	_ = f.r.do(func() error {
		rc = function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](f.below.FxWrite)(tls, file, data, n, off)
		return failed(rc)
	}, func() { f.r.wrote(f.node, f.rel, unsafe.Slice(at[byte](data), n), off) })
	return rc
}

func sqliteTruncate(tls *libc.TLS, file uintptr, size int64) (rc int32) {
	f := fileAt(file)
	_ = f.r.do(func() error {
		rc = function[func(*libc.TLS, uintptr, int64) int32](f.below.FxTruncate)(tls, file, size)
		return failed(rc)
	}, func() { f.r.add(&op{kind: opTruncate, node: f.node, size: size}, "truncate %s to %d", f.rel, size) })
	return rc
}

func sqliteSync(tls *libc.TLS, file uintptr, flags int32) (rc int32) {
	f := fileAt(file)
	_ = f.r.do(func() error {
		rc = function[func(*libc.TLS, uintptr, int32) int32](f.below.FxSync)(tls, file, flags)
		return failed(rc)
	}, func() {
		if f.r.loses != nil && f.r.loses(f.rel) {
			return
		}
		f.r.add(&op{kind: opSync, node: f.node}, "sync %s", f.rel)
		f.r.folders()
	})
	return rc
}

func sqliteClose(tls *libc.TLS, file uintptr) int32 {
	f := fileAt(file)
	rc := function[func(*libc.TLS, uintptr) int32](f.below.FxClose)(tls, file)
	shim.mu.Lock()
	defer shim.mu.Unlock()
	delete(shim.files, file)
	return rc
}

func sqliteDelete(tls *libc.TLS, vfs, name uintptr, syncDir int32) (rc int32) {
	remove := function[func(*libc.TLS, uintptr, uintptr, int32) int32](shim.below.FxDelete)
	path := text(name)
	r, _ := recorderOf(path)
	if r == nil {
		return remove(tls, vfs, name, syncDir)
	}
	_ = r.do(func() error {
		if _, err := os.Lstat(path); err != nil { // SQLite also deletes missing files
			rc = remove(tls, vfs, name, syncDir)
			return err
		}
		rc = remove(tls, vfs, name, syncDir)
		return failed(rc)
	}, func() {
		r.removed(path)
		r.folders()
	})
	return rc
}

// sqliteOpenFolder opens the folder of a file, to sync it. SQLite calls it
// within one of the calls above, which holds the recorder's lock.
func sqliteOpenFolder(tls *libc.TLS, name, fd uintptr) int32 {
	if r, rel := recorderOf(text(name)); r != nil {
		r.due = append(r.due, filepath.Dir(rel))
	}
	return function[func(*libc.TLS, uintptr, uintptr) int32](folderOpener)(tls, name, fd)
}

// folders records the folder syncs that SQLite made within a call.
func (r *Recorder) folders() {
	for _, rel := range r.due {
		r.syncedDir(rel)
	}
	r.due = nil
}
