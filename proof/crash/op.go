package crash

// sector is what a disk writes whole or not at all.
const sector = 512

// kind says what an op did.
type kind uint8

const (
	opNames    kind = iota // one or two names have changed, in one step
	opWrite                // bytes of a file
	opTruncate             // a file's length
	opSync                 // of a file
	opSyncDir              // of a folder
	opNote                 // nothing on the disk: what a client asked for or was told
)

// op is one recorded step. Files and folders are numbered: their names change. The top folder is number 0.
type op struct {
	kind  kind
	node  int // the file, or the folder that was synced
	off   int64
	data  []byte
	size  int64
	names []naming
	note  any
	text  string // for people
}

// naming is one name's change: to a file or folder, or to nothing.
type naming struct {
	dir  int
	name string
	node int // gone if there is none any more
}

const gone = -1

// sectors is how many sectors a write touches.
func (o *op) sectors() int {
	if len(o.data) == 0 {
		return 1
	}
	return int((o.off+int64(len(o.data))-1)/sector - o.off/sector + 1)
}

// piece is the part of a write that lies in its n-th sector.
func (o *op) piece(n int) (off int64, data []byte) {
	from := max((o.off/sector+int64(n))*sector, o.off)
	to := min((o.off/sector+int64(n)+1)*sector, o.off+int64(len(o.data)))
	return from, o.data[from-o.off : to-o.off]
}
