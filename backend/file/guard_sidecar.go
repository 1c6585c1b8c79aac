package file

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

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/fsys"
)

// SidecarError says that a sidecar cannot be trusted. The mark is unknown, so
// the guard admits nothing until somebody repairs the sidecar.
type SidecarError struct {
	Path, Reason string
	// Foreign is true if another user has planted the sidecar.
	Foreign bool
}

func (e *SidecarError) Error() string {
	repair := "rm " + pasted(e.Path) + " && croft guard raise " + pasted(strings.TrimSuffix(e.Path, guardSuffix))
	if e.Foreign {
		return fmt.Sprintf("the sidecar %s is not trusted (%s); keep the file in a directory that only its writers "+
			"may write, or remove the sidecar and raise the fence with the token of the present owner: %s",
			e.Path, e.Reason, repair)
	}
	return fmt.Sprintf("the sidecar %s is damaged (%s), and with it the memory of whose writes count; "+
		"restore it from where it was moved or copied, or, once no old writer is alive, "+
		"remove it and raise the fence with the token of the present owner: %s",
		e.Path, e.Reason, repair)
}

// pasted returns a path as one word of a command. A shell runs nothing in it,
// even if a stranger has chosen the name of the file.
func pasted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// ErrLockNotKept means that another process was inside the guard at the same
// time, because the mount does not keep locks. The content and the mark may be
// from either process. The owner with the newest token should write again.
var ErrLockNotKept = errors.New("another writer was inside the guard at the same time: this mount does not keep locks")

// lookTries is how often look reads a sidecar that seems damaged, 5 ms apart.
// Without the lock, a slow reader can meet both slots while they are written.
const lookTries = 20

const lookPause = 5 * time.Millisecond

// look reads the sidecar without the lock.
func (v *visit) look(ctx context.Context) (slotState, error) {
	var failed error
	for try := range lookTries {
		if try > 0 {
			_ = clock.Sleep(ctx, lookPause)
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

// distrust makes the error for a sidecar that could not be read.
func (f *File) distrust(err error) error {
	if errors.Is(err, errSlotFormat) {
		return fmt.Errorf("guard %s: its sidecar %s: %w", f.path, f.sidecar, err)
	}
	return &SidecarError{Path: f.sidecar, Reason: err.Error()}
}

// trust refuses a sidecar that is not a regular file, or that another user has
// planted. It checks the owner only in sticky folders: in others, a user who
// can plant a sidecar can replace the artifact as well.
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
		"who is neither you nor root, and owns neither the file nor its directory, "+
		"where every user can make files", owner)}
}

// planted reports whether another user may have put a file in the caller's way.
// In a sticky folder, /tmp for example, any user can make a file under any free
// name. Only the file's owner, the folder's owner or root can remove it.
func planted(file, folder fs.FileInfo) bool {
	owner := guardUser(file)
	return folder.Mode()&fs.ModeSticky != 0 && owner != 0 && owner != os.Geteuid() && owner != guardUser(folder)
}

// readImage reads a whole sidecar. It reads one byte more if the file is too
// long, so that the caller notices.
func (v *visit) readImage(file fsys.File) ([]byte, error) {
	image := make([]byte, slotFile+1)
	n, err := file.ReadAt(image, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, v.explain(err)
	}
	return image[:n], nil
}

// explain adds the sidecar's path to a file system's error, and advice if there
// is any.
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

// sidecarPerm returns the sidecar's permissions: read and write for the owner,
// and for all who may write the artifact. Users who may only read the artifact
// get none. flock(2) asks for no more than an open file, so they could keep
// every writer waiting.
func sidecarPerm(artifact fs.FileMode) fs.FileMode {
	write := artifact.Perm()&0o222 | 0o200
	return write | write<<1
}

// newborn reports whether a sidecar could not be opened because its maker has
// not yet given it its permissions. That takes only a moment: look again.
func (v *visit) newborn(err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	info, err := v.fs.Lstat(v.sidecar)
	return err == nil && info.Size() == 0
}

// openSidecar opens the sidecar for writing. It makes an empty one if there is
// none. It takes no lock.
func (v *visit) openSidecar(ctx context.Context, old fs.FileInfo) (fsys.File, error) {
	for try := 0; ; try++ {
		// Two steps: in a sticky directory O_CREATE may fail on another user's
		// file (fs.protected_regular).
		file, err := v.fs.Open(v.sidecar, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = v.makeSidecar(old)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if try < lookTries && v.newborn(err) {
			_ = clock.Sleep(ctx, lookPause)
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

// makeSidecar makes an empty sidecar. If there is no artifact, the umask
// decides who may open it, as for any new file.
func (v *visit) makeSidecar(old fs.FileInfo) (fsys.File, error) {
	perm := fs.FileMode(0o622)
	if old != nil {
		perm = 0o600 // until it has the right group
	}
	file, err := v.fs.Open(v.sidecar, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	if err := setSidecarPermissions(file, old); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// setSidecarPermissions gives the sidecar the artifact's owner and group, and
// its permissions (see sidecarPerm). Only the sidecar's owner or root can do
// this. For other users the sidecar is good as it is, or they could not have
// opened it.
func setSidecarPermissions(file fsys.File, old fs.FileInfo) error {
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
