// Package ground tells what is known of the place where a store keeps its files: the kind of file system, and whether a program copies them between
// machines behind everybody's back.
package ground

// Kind groups file systems by what they are worth to a store.
type Kind int

// The kinds of file systems.
const (
	Unknown Kind = iota
	Local
	Memory
	Network
	Foreign // works through a translation whose promises differ
	Overlay
)

// Mount is what is known of the file system that a store lies on.
type Mount struct {
	Name             string
	Kind             Kind
	Free, Size       uint64 // bytes
	FreeFiles, Files uint64 // inodes; zero where there is no such limit
}
