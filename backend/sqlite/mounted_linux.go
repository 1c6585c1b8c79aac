package sqlite

import "golang.org/x/sys/unix"

// mountedAlone reports whether a file is a mount of its own, apart from its
// folder. It reports false if the kernel does not say.
func mountedAlone(file, folder string) bool {
	of := func(path string) (id uint64, known bool) {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
		return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
	}
	a, known := of(file)
	b, too := of(folder)
	return known && too && a != b
}
