package crash

// sector is the number of bytes that a disk writes whole or not at all.
const sector = 512

// kind is the kind of an op.
type kind uint8

const (
	opNames    kind = iota // changes one or two names, in one step
	opWrite                // writes bytes of a file
	opTruncate             // changes a file's length
	opSync                 // syncs a file
	opSyncDir              // syncs a folder
	opNote                 // no change of the disk: a client's request, or its answer
)

// op is one recorded step. Files and folders have numbers, because their names
// change. The top folder is number 0.
type op struct {
	kind  kind
	node  int // the file, or the folder that was synced
	off   int64
	data  []byte
	size  int64
	names []naming
	note  any
	text  string // a description for people
}

// naming is the change of one name: it gets a file or folder, or is removed.
type naming struct {
	dir  int
	name string
	node int // gone if the name is removed
}

const gone = -1

// sectors returns how many sectors a write touches.
func (o *op) sectors() int {
	if len(o.data) == 0 {
		return 1
	}
	return int((o.off+int64(len(o.data))-1)/sector - o.off/sector + 1)
}

// piece returns the part of a write that lies in its n-th sector.
func (o *op) piece(n int) (off int64, data []byte) {
	from := max((o.off/sector+int64(n))*sector, o.off)
	to := min((o.off/sector+int64(n)+1)*sector, o.off+int64(len(o.data)))
	return from, o.data[from-o.off : to-o.off]
}
