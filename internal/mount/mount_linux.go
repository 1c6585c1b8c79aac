package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// magics has the known file systems, by the type that statfs(2) returns.
var magics = map[uint32]struct {
	name string
	kind Kind
}{
	0xef53:     {"ext4", Local},
	0x58465342: {"xfs", Local},
	0x9123683e: {"btrfs", Local},
	0x2fc12fc1: {"zfs", Local},
	0xf2f52010: {"f2fs", Local},
	0xca451a4e: {"bcachefs", Local},
	0x01021994: {"tmpfs", Memory},
	0x858458f6: {"ramfs", Memory},
	0x6969:     {"nfs", Network},
	0x517b:     {"smb", Network},
	0xff534d42: {"cifs", Network},
	0xfe534d42: {"smb2", Network},
	0x01021997: {"9p", Network},
	0x00c36400: {"ceph", Network},
	0x0bd00bd3: {"lustre", Network},
	0x47504653: {"gpfs", Network},
	0x5346414f: {"afs", Network},
	0x73757245: {"coda", Network},
	0x19830326: {"beegfs", Network},
	0x01161970: {"gfs2", Network}, // a disk that several machines mount
	0x7461636f: {"ocfs2", Network},
	// A folder of the host: the other users of it have another kernel.
	0x786f4256: {"vboxsf", Network},
	0xbacbacbc: {"vmhgfs", Network},
	0x65735546: {"fuse", Foreign},
	0x794c7630: {"overlay", Overlay},
	0x4d44:     {"vfat", Foreign},
	0x2011bab0: {"exfat", Foreign},
	0x7366746e: {"ntfs", Foreign},
}

// Of describes the file system at a path.
func Of(path string) (Mount, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Mount{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	magic := uint32(st.Type)
	m := Mount{Name: fmt.Sprintf("unknown (type %#x)", magic), Kind: Unknown}
	if known, ok := magics[magic]; ok {
		m.Name, m.Kind = known.name, known.kind
	}
	m.Free, m.Size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	m.FreeFiles, m.Files = st.Ffree, st.Files
	return m, nil
}
