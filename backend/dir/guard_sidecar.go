package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/croft-dev/croft/internal/fsys"
)

// SidecarError says that a sidecar cannot be trusted: the mark is unknown, so nothing is admitted until it is repaired.
type SidecarError struct {
	Path, Reason string
	// Foreign: another user has planted it.
	Foreign bool
}

func (e *SidecarError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("the sidecar %s is not trusted (%s); keep the file in a directory that only its writers "+
			"may write, or remove the sidecar and raise the fence with the token of the present owner: "+
			"rm '%[1]s' && croft guard raise '%[3]s'",
			e.Path, e.Reason, strings.TrimSuffix(e.Path, guardSuffix))
	}
	return fmt.Sprintf("the sidecar %s is damaged (%s), and with it the memory of whose writes count; restore it from where it was moved or copied, or, once no old writer "+
		"is alive, remove it and raise the fence with the token of the present owner: rm '%[1]s' && croft guard raise '%[3]s'",
		e.Path, e.Reason, strings.TrimSuffix(e.Path, guardSuffix))
}

// ErrLockNotKept is matched when another process was inside a guard at the same time: the mount does not keep locks. The content may be of either, and
// the mark too. The owner with the newest token should write again.
var ErrLockNotKept = errors.New("another writer was inside the guard at the same time: this mount does not keep locks")

// lookTries is how often a sidecar that looks damaged is read again, 5 ms apart, before it is called so: without the lock, a reader who is slow between
// the two slots can meet both of them being written.
const lookTries = 20

const lookPause = 5 * time.Millisecond

// look reads the sidecar without the lock.
func (v *visit) look(ctx context.Context) (slotState, error) {
	var failed error
	for try := range lookTries {
		if try > 0 {
			rest(ctx, lookPause)
		}
		if err := ctx.Err(); err != nil {
			return slotState{}, fmt.Errorf("guard %s: %w", v.path, err)
		}
		file, err := v.fs.Open(v.sidecar, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return slotState{}, nil
		}
		if v.newborn(err) {
			failed = v.explain(err)
			continue
		}
		if err != nil {
			return slotState{}, v.explain(err)
		}
		var image []byte
		if err = v.trust(file); err == nil {
			image, err = v.readImage(file)
		}
		_ = file.Close()
		if err != nil {
			return slotState{}, err
		}
		s, _, err := slotNewest(image)
		if err == nil {
			return s, nil
		}
		failed = v.distrust(err)
	}
	return slotState{}, failed
}

// distrust says why a sidecar could not be read.
func (f *File) distrust(err error) error {
	if errors.Is(err, errSlotFormat) {
		return fmt.Errorf("guard %s: its sidecar %s: %w", f.path, f.sidecar, err)
	}
	return &SidecarError{Path: f.sidecar, Reason: err.Error()}
}

// trust refuses a sidecar that is no regular file, and one that another user
// has planted. In a folder that is not sticky, a user who can plant one can
// replace the artifact as well.
func (v *visit) trust(file fsys.File) error {
	info, err := file.Stat()
	if err != nil {
		return v.explain(err)
	}
	if !info.Mode().IsRegular() {
		return &SidecarError{Path: v.sidecar, Reason: "it is no regular file"}
	}
	folder, err := v.fs.Lstat(v.folder)
	if err != nil {
		return v.explain(err)
	}
	if !planted(info, folder) {
		return nil
	}
	owner := guardUser(info)
	if artifact, err := v.fs.Lstat(v.path); err == nil && owner == guardUser(artifact) {
		return nil
	}
	return &SidecarError{Path: v.sidecar, Foreign: true, Reason: fmt.Sprintf("user %d has made it, "+
		"who is neither you nor root, and owns neither the file nor its directory, where every user can make files", owner)}
}

// planted reports whether another user may have put a file in the caller's way.
// In a sticky folder, /tmp for example, any user can make a file under any free
// name, and only its owner, the folder's or root can remove it.
func planted(file, folder fs.FileInfo) bool {
	owner := guardUser(file)
	return folder.Mode()&fs.ModeSticky != 0 && owner != 0 && owner != os.Geteuid() && owner != guardUser(folder)
}

// readImage reads a whole sidecar, and one byte more if it is too long.
func (v *visit) readImage(file fsys.File) ([]byte, error) {
	image := make([]byte, slotFile+1)
	n, err := file.ReadAt(image, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, v.explain(err)
	}
	return image[:n], nil
}

// explain names the sidecar in an error of the file system, and the remedy where there is one.
func (f *File) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("guard %s: %w; users who may write the file, and no others, may open its sidecar %s: "+
			"check the permissions of both and of their directory", f.path, err, f.sidecar)
	case errors.Is(err, syscall.ELOOP):
		return &SidecarError{Path: f.sidecar, Reason: "it is a symbolic link"}
	}
	return fmt.Errorf("guard %s: %w", f.path, err)
}

// sidecarPerm lets in those who may write the artifact, and its owner. Users
// who may only read it stay out: an open file is all that flock(2) asks for,
// and they could keep every writer waiting.
func sidecarPerm(artifact fs.FileMode) fs.FileMode {
	write := artifact.Perm()&0o222 | 0o200
	return write | write<<1
}

// newborn reports whether a sidecar could not be opened because its maker has
// not yet given it its permissions. That takes it a moment: look again.
func (v *visit) newborn(err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	info, err := v.fs.Lstat(v.sidecar)
	return err == nil && info.Size() == 0
}

// openSidecar opens the sidecar for writing, making an empty one if there is
// none. It waits for no lock.
func (v *visit) openSidecar(ctx context.Context, old fs.FileInfo) (fsys.File, error) {
	for try := 0; ; try++ {
		// Not in one step: a sticky directory may forbid O_CREATE on what another user made (fs.protected_regular).
		file, err := v.fs.Open(v.sidecar, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = v.makeSidecar(old)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if try < lookTries && v.newborn(err) {
			rest(ctx, lookPause)
			continue
		}
		if err != nil {
			return nil, v.explain(err)
		}
		if err := v.trust(file); err != nil {
			_ = file.Close()
			return nil, err
		}
		return file, nil
	}
}

// makeSidecar makes an empty sidecar. Without an artifact, it lets in those whom
// the umask lets write a new file.
func (v *visit) makeSidecar(old fs.FileInfo) (fsys.File, error) {
	perm := fs.FileMode(0o622)
	if old != nil {
		perm = 0o600 // until it has the group that it shall have
	}
	file, err := v.fs.Open(v.sidecar, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	if err := dressSidecar(file, old); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// dressSidecar gives the sidecar the artifact's owner and group, and lets in
// those who may write the artifact, where the system lets us: only its owner or
// root can. For others it is good as it is, or they could not have opened it.
func dressSidecar(file fsys.File, old fs.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if old == nil {
		old = info
	}
	if uid, gid := guardChown(info, old); uid >= 0 || gid >= 0 {
		if err := file.Chown(uid, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if perm := sidecarPerm(old.Mode()); info.Mode().Perm() != perm {
		if err := file.Chmod(perm); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
