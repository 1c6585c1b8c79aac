// Package mount tells on which file system a store keeps its files, and
// whether a program copies these files between machines.
package mount

// Kind groups file systems by how well a store works on them.
type Kind int

// The kinds of file systems.
const (
	Unknown Kind = iota
	Local
	Memory
	Network
	// Foreign file systems are reached through a translation with other
	// guarantees.
	Foreign
	Overlay
)

// Mount describes the file system at a path.
type Mount struct {
	Name             string
	Kind             Kind
	Free, Size       uint64 // bytes
	FreeFiles, Files uint64 // inodes; zero where there is no limit
}
