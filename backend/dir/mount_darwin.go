package dir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var kinds = map[string]fsKind{
	"apfs": fsLocal, "hfs": fsLocal, "tmpfs": fsMemory,
	"nfs": fsNetwork, "smbfs": fsNetwork, "afpfs": fsNetwork, "webdav": fsNetwork,
	"macfuse": fsForeign, "osxfuse": fsForeign, "msdos": fsForeign, "exfat": fsForeign,
}

// mountOf says what kind of file system a path lies on.
func mountOf(path string) (mount, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return mount{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	m := mount{name: unix.ByteSliceToString(st.Fstypename[:]), kind: fsUnknown}
	if kind, ok := kinds[m.name]; ok {
		m.kind = kind
	}
	m.free, m.size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	m.freeFiles, m.files = st.Ffree, st.Files
	return m, nil
}
