package dir

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/store"
)

// Examine reports how fit the directory is to keep leases, for `croft doctor`.
func (r *register) Examine(ctx context.Context) ([]store.Finding, error) {
	if err := r.checkMount(); err != nil {
		return nil, err
	}
	var findings []store.Finding
	for _, look := range []func(context.Context) []store.Finding{
		r.examineMount, r.examineWrite, r.examineLink, r.examineClock, r.examinePermissions, r.examineSync,
		r.examineKeys, r.examineTmp, r.examineActs,
	} {
		if ctx.Err() != nil {
			return findings, context.Cause(ctx)
		}
		findings = append(findings, look(ctx)...)
	}
	return findings, nil
}

func finding(check string, level store.Level, advice, format string, args ...any) store.Finding {
	return store.Finding{Check: check, Level: level, Seen: fmt.Sprintf(format, args...), Advice: advice}
}

func (r *register) examineMount(context.Context) []store.Finding {
	m, err := mount.Of(r.root)
	if err != nil {
		return []store.Finding{finding("tier", store.Warn, "make sure that it is a local disk",
			"not known: the file system cannot be told: %v", err)}
	}
	return []store.Finding{tierOf(m), gradeMount(m), examine.Space(m)}
}

// tierOf says how much a store on this mount promises as a whole.
func tierOf(m mount.Mount) store.Finding {
	switch m.Kind {
	case mount.Local, mount.Memory:
		return finding("tier", store.OK, "",
			"consistent: every change is one atomic step, and all who share the directory see it at once")
	case mount.Network:
		return finding("tier", store.Warn, "let croft drill try it from two machines",
			"consistent where the server's link is atomic; what others changed may be seen late")
	}
	return finding("tier", store.Warn, "let croft drill try it",
		"not known: it rests on what this file system promises about links")
}

// gradeMount says how well a file system suits a store, and why.
func gradeMount(m mount.Mount) store.Finding {
	kind := finding("file system", store.OK, "", "%s", m.Name)
	switch m.Kind {
	case mount.Local:
		kind.Seen += ", a local disk"
	case mount.Memory:
		kind.Seen += ", in memory: everything is forgotten at reboot, when all its holders are gone as well"
	case mount.Network:
		kind.Level = store.Warn
		kind.Seen += ", over the network: a cached listing may be old, and changes by others wake nobody"
		kind.Advice = "mount NFS with noac or actimeo=1; " +
			"other network file systems promise less: prefer a store with a server"
	case mount.Foreign:
		kind.Level = store.Warn
		kind.Seen += ", whose promises about links, renames and syncs are those of what is behind it"
		kind.Advice = "prefer a local disk with ext4, xfs, btrfs or apfs"
	case mount.Overlay:
		kind.Level = store.Warn
		kind.Seen += ", as in a container: what is written here is seen by this container alone and goes with it"
		kind.Advice = "mount a volume that all containers share, and put the store there"
	case mount.Unknown:
		kind.Level = store.Warn
		kind.Advice = "make sure that link(2) is atomic there and that fsync(2) reaches the disk"
	}
	return kind
}

// examineWrite tries to write a file as large as a record.
func (r *register) examineWrite(context.Context) []store.Finding {
	temp, _, err := r.stage(make([]byte, examine.BlockSize))
	if err != nil {
		return []store.Finding{finding("write", store.Bad,
			"no lease can be taken, renewed or released until it can be written", "%v", r.explain(err))}
	}
	_ = r.fs.Remove(temp) // if this fails, a sweep removes it
	return []store.Finding{finding("write", store.OK, "", "a file can be written")}
}

func (r *register) examineLink(context.Context) []store.Finding {
	temp, _, err := r.stage(nil)
	if err != nil {
		return nil // examineWrite has said so
	}
	defer r.fs.Remove(temp)
	if err := checkLink(r.layout, temp); err != nil {
		return []store.Finding{finding("link", store.Bad, "choose a directory on a local disk or on NFS", "%v", err)}
	}
	return []store.Finding{finding("link", store.OK, "", "a second link to one name is refused, as it must be")}
}

func (r *register) examineClock(context.Context) []store.Finding {
	before := time.Now()
	now, err := r.clock.real()
	if err != nil {
		return []store.Finding{finding("clock", store.Bad, "see whether the directory can be written", "%v", err)}
	}
	took := time.Since(before)
	offset := now.Sub(before.Add(took / 2))
	f := finding("clock", store.OK, "",
		"the file system's clock and this machine's differ by %s", offset.Round(time.Millisecond))
	if offset.Abs() > time.Second+took { // more than the time it took to ask
		f.Level = store.Warn
		f.Advice = "leases go by the file system's clock and are not harmed, " +
			"but set both clocks right: people compare times"
	}
	if again, err := r.clock.real(); err == nil && now.Nanosecond() == 0 && again.Nanosecond() == 0 {
		f.Level = store.Warn
		f.Seen += "; it ticks in whole seconds"
		f.Advice = "use TTLs of half a minute or more here"
	}
	return []store.Finding{f}
}

func (r *register) examinePermissions(context.Context) []store.Finding {
	info, err := r.fs.Stat(r.root)
	if err != nil {
		return []store.Finding{finding("permissions", store.Bad,
			"give this user the permission to read and write the directory", "%v", err)}
	}
	mode := info.Mode()
	f := finding("permissions", store.OK, "", "%s, for its owner alone", mode)
	switch perm := mode.Perm(); {
	case perm&0o077 == 0:
	case perm&0o002 != 0:
		f.Level, f.Seen = store.Warn, fmt.Sprintf("%s: every user of this machine can change or delete leases", mode)
		f.Advice = "share it with a group instead: chgrp GROUP and chmod 2770 the directory before it is first used"
	case perm&0o020 != 0 && mode&fs.ModeSetgid == 0:
		f.Level, f.Seen = store.Warn, fmt.Sprintf(
			"%s: shared with a group, but files in it get their maker's group", mode)
		f.Advice = "chmod g+s the directory and the folders in it"
	case perm&0o020 != 0:
		f.Seen = fmt.Sprintf("%s, shared with a group", mode)
	default:
		f.Seen = fmt.Sprintf("%s, written by its owner alone and readable by others", mode)
	}
	return []store.Finding{f}
}

func (r *register) examineSync(context.Context) []store.Finding {
	if service, where := mount.SyncedBy(r.fs.FS, r.root); service != "" {
		return []store.Finding{finding("sync folder", store.Bad,
			"choose a directory that nothing copies between machines", "%s copies it (%s)", service, where)}
	}
	return []store.Finding{finding("sync folder", store.OK, "", "no program is known to copy it between machines")}
}

func (r *register) examineKeys(ctx context.Context) []store.Finding {
	keys := 0
	for _, err := range r.Scan(ctx) {
		if err != nil {
			return []store.Finding{finding("keys", store.Bad, "repair what is named", "%d can be read; %v", keys, err)}
		}
		keys++
	}
	return []store.Finding{finding("keys", store.OK, "", "%d", keys)}
}

func (r *register) examineTmp(context.Context) []store.Finding {
	names, err := r.fs.Names(r.tmp)
	if err != nil {
		return []store.Finding{finding("leftovers", store.Warn, "see whether the directory can be read", "%v", err)}
	}
	old := 0
	for _, name := range names {
		info, err := r.fs.Lstat(filepath.Join(r.tmp, name))
		if err == nil && isTemp(name) && time.Since(info.ModTime()) > 2*leftoverAge {
			old++
		}
	}
	if old > 0 {
		return []store.Finding{finding("leftovers", store.OK, "the next sweep removes them",
			"%d of stopped processes in %s", old, r.tmp)}
	}
	return []store.Finding{finding("leftovers", store.OK, "", "none")}
}

// examineActs reports a file in the place of the acts folder. It would keep
// holders from learning of operators' acts at once.
func (r *register) examineActs(context.Context) []store.Finding {
	if info, err := r.fs.Lstat(r.acts); err != nil || info.IsDir() {
		return nil // it is made when needed
	}
	return []store.Finding{finding("acts", store.Warn, "see who put it there, and remove it",
		"%s is not a folder: holders learn of operators' acts only by renewing", r.acts)}
}
