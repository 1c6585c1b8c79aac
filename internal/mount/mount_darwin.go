package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var kinds = map[string]Kind{
	"apfs": Local, "hfs": Local, "tmpfs": Memory,
	"nfs": Network, "smbfs": Network, "afpfs": Network, "webdav": Network,
	"macfuse": Foreign, "osxfuse": Foreign, "msdos": Foreign, "exfat": Foreign,
}

// Of describes the file system at a path.
func Of(path string) (Mount, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Mount{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	m := Mount{Name: unix.ByteSliceToString(st.Fstypename[:]), Kind: Unknown}
	if kind, ok := kinds[m.Name]; ok {
		m.Kind = kind
	}
	m.Free, m.Size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	m.FreeFiles, m.Files = st.Ffree, st.Files
	return m, nil
}
