package examine

import (
	"fmt"

	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/store"
)

// BlockSize is the space that a record takes on most disks.
const BlockSize = 4096

// Space grades the free space of the disk that a store is on. It is bad if a
// record does not fit.
func Space(m mount.Mount) store.Finding {
	share := func(free, size uint64) float64 { return 100 * float64(free) / float64(max(size, 1)) }
	level := store.OK
	seen := fmt.Sprintf("%d MiB free of %d MiB (%.0f %%)", m.Free>>20, m.Size>>20, share(m.Free, m.Size))
	if m.Free < 10<<20 || share(m.Free, m.Size) < 5 {
		level = store.Warn
	}
	if m.Files > 0 && share(m.FreeFiles, m.Files) < 5 {
		level = store.Warn
		seen += fmt.Sprintf(", %d inodes free of %d", m.FreeFiles, m.Files)
	}
	if m.Free < BlockSize || m.Files > 0 && m.FreeFiles == 0 {
		level = store.Bad
	}
	return Found("free space", level, seen,
		"free some space: on a full disk no lease can be taken, renewed or released")
}
