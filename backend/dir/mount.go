package dir

// fsKind groups file systems by what they are worth to a store.
type fsKind int

const (
	fsUnknown fsKind = iota
	fsLocal
	fsMemory
	fsNetwork
	fsForeign // works through a translation whose promises differ
	fsOverlay
)

// mount is what is known of the file system that a store lies on.
type mount struct {
	name             string
	kind             fsKind
	free, size       uint64 // bytes
	freeFiles, files uint64 // inodes; zero where there is no such limit
}
