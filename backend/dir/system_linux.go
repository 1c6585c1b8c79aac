package dir

import (
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/fsys"
)

// touch sets a file's modification time to its file system's present time: futimens(2). Over NFS the server's clock counts.
func touch(f fsys.File) error {
	now := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&now[0])), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("reading the file system's clock: %w", errno)
		}
	}
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its type differs between architectures
	}
	return 0
}

// magics are the file systems worth telling apart, by statfs(2).
var magics = map[uint32]struct {
	name string
	kind fsKind
}{
	0xef53:     {"ext4", fsLocal},
	0x58465342: {"xfs", fsLocal},
	0x9123683e: {"btrfs", fsLocal},
	0x2fc12fc1: {"zfs", fsLocal},
	0xf2f52010: {"f2fs", fsLocal},
	0xca451a4e: {"bcachefs", fsLocal},
	0x01021994: {"tmpfs", fsMemory},
	0x858458f6: {"ramfs", fsMemory},
	0x6969:     {"nfs", fsNetwork},
	0x517b:     {"smb", fsNetwork},
	0xff534d42: {"cifs", fsNetwork},
	0xfe534d42: {"smb2", fsNetwork},
	0x01021997: {"9p", fsNetwork},
	0x00c36400: {"ceph", fsNetwork},
	0x0bd00bd3: {"lustre", fsNetwork},
	0x47504653: {"gpfs", fsNetwork},
	0x5346414f: {"afs", fsNetwork},
	0x65735546: {"fuse", fsForeign},
	0x794c7630: {"overlay", fsOverlay},
	0x4d44:     {"vfat", fsForeign},
	0x2011bab0: {"exfat", fsForeign},
	0x7366746e: {"ntfs", fsForeign},
}

// mountOf says what kind of file system a path lies on.
func mountOf(path string) (mount, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return mount{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	magic := uint32(st.Type)
	m := mount{name: fmt.Sprintf("unknown (type %#x)", magic), kind: fsUnknown}
	if known, ok := magics[magic]; ok {
		m.name, m.kind = known.name, known.kind
	}
	m.free, m.size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	m.freeFiles, m.files = st.Ffree, st.Files
	return m, nil
}

func platform() error { return nil }
