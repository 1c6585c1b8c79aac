package crash

import (
	"maps"
	"slices"
)

// Disk is the state of a disk after some steps of a recording. It has the
// changes that are safe, and those that may not have reached the disk.
type Disk struct {
	ops     []*op
	at      int
	files   map[int][]byte         // the safe content of every file
	folders map[int]map[string]int // the safe names in every folder
	pending []*op                  // the changes that are not safe yet, in order
	notes   []any
}

// Disk returns a replay of the recording, at its beginning.
func (r *Recorder) Disk() *Disk {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Disk{ops: slices.Clone(r.ops), files: map[int][]byte{}, folders: map[int]map[string]int{0: {}}}
}

// Next takes one step, and reports whether there was one.
func (d *Disk) Next() bool {
	if d.at == len(d.ops) {
		return false
	}
	o := d.ops[d.at]
	d.at++
	switch o.kind {
	case opNames:
		if o.node != 0 { // a new file or folder, with no other name yet
			if o.size == folder {
				d.folders[o.node] = map[string]int{}
			} else {
				d.files[o.node] = nil
			}
		}
		d.pending = append(d.pending, o)
	case opWrite, opTruncate:
		d.pending = append(d.pending, o)
	case opSync:
		d.settle(func(p *op) bool {
			if p.kind == opNames || p.node != o.node {
				return false
			}
			d.files[p.node] = apply(d.files[p.node], p, nil)
			return true
		})
	case opSyncDir:
		d.syncDir(o.node)
	case opNote:
		d.notes = append(d.notes, o.note)
	}
	return true
}

// settle removes the steps that are safe now from the pending ones.
func (d *Disk) settle(safe func(*op) bool) { d.pending = slices.DeleteFunc(d.pending, safe) }

// syncDir makes the names in a folder safe. If a step also changes a name in
// another folder, that becomes safe too, and so do the steps that must come
// before it.
func (d *Disk) syncDir(dir int) {
	due := d.closure(func(_ int, p *op) bool {
		return slices.ContainsFunc(p.names, func(n naming) bool { return n.dir == dir })
	})
	d.settle(func(p *op) bool {
		if due[p] {
			rename(d.folders, p)
		}
		return due[p]
	})
}

// closure returns the chosen changes of names among the pending ones, and the
// earlier ones that must come before them. These are changes of the same name,
// and moves of the same file or folder, which otherwise would be in two
// folders.
func (d *Disk) closure(chosen func(i int, p *op) bool) map[*op]bool {
	due := map[*op]bool{}
	type dirEntry struct {
		dir  int
		name string
	}
	names, moved := map[dirEntry]bool{}, map[int]bool{}
	for i, p := range slices.Backward(d.pending) {
		if p.kind != opNames {
			continue
		}
		due[p] = chosen(i, p)
		for _, n := range p.names {
			due[p] = due[p] || names[dirEntry{n.dir, n.name}] || len(p.names) == 2 && n.node != gone && moved[n.node]
		}
		if !due[p] {
			continue
		}
		for _, n := range p.names {
			names[dirEntry{n.dir, n.name}] = true
			if n.node != gone && len(p.names) == 2 {
				moved[n.node] = true
			}
		}
	}
	return due
}

// rename applies the changes of names in a step to folders.
func rename(folders map[int]map[string]int, o *op) {
	for _, n := range o.names {
		if n.node == gone {
			delete(folders[n.dir], n.name)
		} else {
			folders[n.dir][n.name] = n.node
		}
	}
}

// apply returns a file's content after a step. keep selects the sectors that
// reach the disk; nil selects all. It does not change data.
func apply(data []byte, o *op, keep func(n int) bool) []byte {
	if o.kind == opTruncate {
		if keep != nil && !keep(0) {
			return data
		}
		return resize(data, o.size)
	}
	copied := false
	for n := range o.sectors() {
		if keep != nil && !keep(n) || len(o.data) == 0 {
			continue
		}
		off, part := o.piece(n)
		if !copied { // copy once, not for every sector of a large file
			data, copied = append(make([]byte, 0, max(len(data), int(o.off)+len(o.data))), data...), true
		}
		if more := int(off) + len(part) - len(data); more > 0 {
			data = append(data, make([]byte, more)...)
		}
		copy(data[off:], part)
	}
	return data
}

// resize returns a copy with that length, filled up with zeros.
func resize(data []byte, size int64) []byte {
	sized := make([]byte, size)
	copy(sized, data)
	return sized
}

// Choice selects the pending steps that have reached the disk.
type Choice struct {
	// Keep decides on the n-th sector of the i-th pending step. A change of
	// names has only sector 0.
	Keep func(i, n int) bool
	// Sizes gives files the length that they had before the cut, with zeros for
	// lost bytes.
	Sizes bool
}

// Cut returns the folder that a power cut leaves now, for a choice.
func (d *Disk) Cut(c Choice) *Image {
	folders := make(map[int]map[string]int, len(d.folders))
	for node, names := range d.folders {
		folders[node] = maps.Clone(names)
	}
	files := map[int][]byte{}
	for node, data := range d.files {
		files[node] = data // apply makes copies
	}
	sizes := map[int]int64{}
	kept := d.closure(func(i int, _ *op) bool { return c.Keep(i, 0) })
	for i, p := range d.pending {
		if p.kind == opNames {
			if kept[p] {
				rename(folders, p)
			}
			continue
		}
		if _, ok := sizes[p.node]; !ok {
			sizes[p.node] = int64(len(d.files[p.node]))
		}
		if p.kind == opTruncate {
			sizes[p.node] = p.size
		} else {
			sizes[p.node] = max(sizes[p.node], p.off+int64(len(p.data)))
		}
		files[p.node] = apply(files[p.node], p, func(n int) bool { return c.Keep(i, n) })
	}
	if c.Sizes {
		for node, size := range sizes {
			if size > int64(len(files[node])) {
				files[node] = resize(files[node], size)
			}
		}
	}
	return newImage(folders, files)
}
