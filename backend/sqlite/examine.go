package sqlite

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// Examine checks whether the file, its folder and its settings are fit to keep
// leases. `croft doctor` prints the findings.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	b, err := s.database(ctx)
	if err != nil {
		return nil, store.Unknown(err)
	}
	var findings []store.Finding
	if b.frozen {
		findings = found("write", store.Bad, "mount it writable: no lease can be taken, renewed or released",
			"it is mounted read-only")
	}
	for _, look := range []func(context.Context, *base) []store.Finding{
		s.examineVersion, s.examineMount, s.examineJournal, s.examineSync, s.examineLock, s.examinePermissions,
		s.examineFolder, s.examineLog, s.examineTables, s.examineIntegrity,
	} {
		if ctx.Err() != nil {
			return findings, store.Unknown(wait.Ended(ctx))
		}
		findings = append(findings, look(ctx, b)...)
	}
	return findings, nil
}

func found(check string, level store.Level, advice, format string, args ...any) []store.Finding {
	return []store.Finding{examine.Found(check, level, fmt.Sprintf(format, args...), advice)}
}

// failed returns the finding of a check that ended with an error.
func (b *base) failed(ctx context.Context, check string, err error) []store.Finding {
	return found(check, store.Bad, "do what it says, then ask again", "%v", b.explain(ctx, err))
}

func (s *Store) examineVersion(ctx context.Context, b *base) []store.Finding {
	var version string
	if err := b.db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return b.failed(ctx, "version", err)
	}
	return found("version", store.OK, "", "SQLite %s", version)
}

func (s *Store) examineMount(_ context.Context, b *base) []store.Finding {
	const tier = "consistent on this one machine: every change is one transaction, on the disk before it is confirmed"
	m, err := mount.Of(b.file)
	if err != nil {
		return found("tier", store.Warn, "make sure that it is a local disk",
			"not known: the file system cannot be told: %v", err)
	}
	return append(gradeMount(m, tier), examine.Space(m))
}

// gradeMount says how far a database can rely on a file system, and why.
func gradeMount(m mount.Mount, tier string) []store.Finding {
	const check = "file system"
	ok, weak := found("tier", store.OK, "", "%s", tier), func(why string) []store.Finding {
		return found("tier", store.Warn, "choose a local disk, or a store with a server",
			"not known: it rests on %s", why)
	}
	switch m.Kind {
	case mount.Local:
		return append(ok, found(check, store.OK, "", "%s, a local disk", m.Name)...)
	case mount.Memory:
		return append(ok, found(check, store.OK, "",
			"%s, in memory: everything is forgotten at reboot, when all its holders are gone as well", m.Name)...)
	case mount.Network:
		return append(
			found("tier", store.Bad, "choose a local disk, or a store with a server", "none between machines"),
			found(check, store.Bad, "choose a local disk, or a store with a server",
				"%s, over the network: SQLite's locks and shared memory do not hold between machines; "+
					"it was allowed by network=allow", m.Name)...)
	case mount.Overlay:
		return append(ok, found(check, store.Warn, "mount a volume that all containers share, and put the file there",
			"%s, as in a container: what is written here is seen by this container alone and goes with it", m.Name)...)
	case mount.Foreign:
		return append(weak("what is behind this file system"),
			found(check, store.Warn, "prefer a local disk with ext4, xfs, btrfs or apfs",
				"%s, whose promises about locks, shared memory and syncs are those of what is behind it", m.Name)...)
	}
	return append(weak("locks and syncs of a file system that is not known"),
		found(check, store.Warn, "make sure that fcntl locks hold there and that fsync(2) reaches the disk",
			"%s", m.Name)...)
}

func (s *Store) examineJournal(ctx context.Context, b *base) []store.Finding {
	const check = "journal_mode"
	if b.frozen {
		return nil // SQLite reads it without a journal
	}
	var mode string
	if err := b.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return b.failed(ctx, check, err)
	}
	if mode != "wal" {
		return found(check, store.Bad, "PRAGMA journal_mode = WAL, once, while nobody uses the file",
			"%s: readers and writers wait for each other, and a reader that is stopped keeps all writers out", mode)
	}
	return found(check, store.OK, "", "wal")
}

// examineSync opens a connection as the writer does: newWriter fails if
// synchronous is not FULL there.
func (s *Store) examineSync(ctx context.Context, b *base) []store.Finding {
	const check = "synchronous"
	w, err := newWriter(ctx, b, &s.options)
	if err != nil {
		return b.failed(ctx, check, err)
	}
	w.discard()
	return found(check, store.OK, "", "full, on the connection that writes: what is confirmed survives a power cut")
}

func (s *Store) examineLock(_ context.Context, b *base) []store.Finding {
	const check = "write lock"
	seen := fmt.Sprintf("free, or held for moments; a request waits %s for it", s.options.LockWait)
	if !b.held() {
		return found(check, store.OK, "", "%s", seen)
	}
	first, _ := lockHolder(b.file)
	for range 20 { // does the same process keep it?
		time.Sleep(10 * time.Millisecond)
		if now, known := lockHolder(b.file); !known || now.pid != first.pid {
			return found(check, store.OK, "", "%s", seen)
		}
	}
	return found(check, store.Warn, "look at that process; `kill -CONT` resumes one that is stopped", "%s", b.holder())
}

func (s *Store) examinePermissions(_ context.Context, b *base) []store.Finding {
	const check = "permissions"
	info, err := os.Lstat(b.file)
	if err != nil {
		return found(check, store.Bad, "give this user the permission to read and write the file", "%v", err)
	}
	mode := info.Mode()
	for _, beside := range []string{"-wal", "-shm"} {
		if i, err := os.Lstat(b.file + beside); err == nil && i.Mode().Perm() != mode.Perm() {
			return found(check, store.Warn, fmt.Sprintf("while nobody uses it: chmod %o %s*", mode.Perm(), b.file),
				"%s, but %s%s has %s: some who may open the one may not open the other",
				mode, info.Name(), beside, i.Mode())
		}
	}
	switch perm := mode.Perm(); {
	case perm&0o077 == 0:
		return found(check, store.OK, "", "%s, for its owner alone", mode)
	case perm&0o002 != 0:
		return found(check, store.Warn,
			"share it with a group instead: chmod 660, in a folder of that group with mode 2770",
			"%s: every user of this machine can change or delete leases", mode)
	case perm&0o020 != 0:
		return found(check, store.OK, "", "%s, shared with a group", mode)
	default:
		return found(check, store.Warn, "chmod 600 it, or 660 to share it with a group: "+
			"those who can only read cannot take leases, and see everybody's",
			"%s, readable by others", mode)
	}
}

func (s *Store) examineFolder(_ context.Context, b *base) []store.Finding {
	const check = "sync folder"
	if service, where := mount.SyncedBy(fsys.OS{}, b.file); service != "" {
		return found(check, store.Bad, "choose a folder that nothing copies between machines",
			"%s copies it (%s)", service, where)
	}
	return found(check, store.OK, "", "no program is known to copy it between machines")
}

const (
	// usualLog is the number of pages at which SQLite copies the log back.
	usualLog = 1000
	// longLog is the number of pages left in the log from which on a reader
	// must be stuck. SQLite cannot copy back pages that are newer than its
	// snapshot.
	longLog = 4 * usualLog
)

// examineLog copies the log back as far as it can. Many pages that are left
// show a reader that does not end.
func (s *Store) examineLog(ctx context.Context, b *base) []store.Finding {
	const check = "size"
	size := func(path string) int64 {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeType == 0 {
			return info.Size()
		}
		return 0
	}
	var busy, pages, copied int
	if err := b.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &copied); err != nil {
		return b.failed(ctx, check, err)
	}
	seen := fmt.Sprintf("%d KiB, and %d KiB in its log", size(b.file)>>10, size(b.file+"-wal")>>10)
	if left := pages - copied; left > longLog {
		return found(check, store.Warn, "end that transaction, or resume or end the process; "+
			"the log is then used again from its beginning, and cut back to 16 MiB",
			"%s, which grows: %d pages cannot be copied back, "+
				"because somebody still reads what was there before them: %s", seen, left, b.readers())
	}
	return found(check, store.OK, "", "%s", seen)
}

func (s *Store) examineTables(ctx context.Context, b *base) []store.Finding {
	var version, keys int
	if err := b.db.QueryRowContext(ctx, sqlVersion).Scan(&version); err != nil {
		return b.failed(ctx, "schema", err)
	}
	if err := b.db.QueryRowContext(ctx, sqlCount).Scan(&keys); err != nil {
		return b.failed(ctx, "keys", err)
	}
	level := store.OK
	if version > len(migrations()) {
		level = store.Warn
	}
	schema := found("schema", level, "use the newer Croft that has made them here as well",
		"version %d; this Croft knows %d", version, len(migrations()))
	for _, err := range s.List(ctx, "") {
		if err != nil {
			return append(schema, found("keys", store.Bad, "do what it says, if the key may be forgotten",
				"%d, and not all can be read: %v", keys, err)...)
		}
	}
	return append(schema, found("keys", store.OK, "", "%d", keys)...)
}

func (s *Store) examineIntegrity(ctx context.Context, b *base) []store.Finding {
	const check = "integrity"
	var verdict string
	if err := b.db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return b.failed(ctx, check, err)
	}
	if verdict != "ok" {
		return found(check, store.Bad,
			"stop all who use it, look at the disk, and bring it back with `sqlite3 FILE .recover`", "%s", verdict)
	}
	return found(check, store.OK, "", "every page is in order")
}
