package crash

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Image is the folder that a power cut leaves.
type Image struct {
	entries []entry // a folder comes before its content
}

type entry struct {
	path string
	node int
	dir  bool
	data []byte
}

func newImage(folders map[int]map[string]int, files map[int][]byte) *Image {
	im := &Image{}
	var walk func(node int, path string, depth int)
	walk = func(node int, path string, depth int) {
		if depth > 20 {
			panic("crash: folders that contain themselves: " + path)
		}
		for name, child := range folders[node] {
			below := filepath.Join(path, name)
			if _, dir := folders[child]; dir {
				im.entries = append(im.entries, entry{below, child, true, nil})
				walk(child, below, depth+1)
				continue
			}
			im.entries = append(im.entries, entry{below, child, false, files[child]})
		}
	}
	walk(0, "", 0)
	slices.SortFunc(im.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return im
}

// Sum is a hash that tells images apart.
func (im *Image) Sum() [32]byte {
	h := sha256.New()
	var number [8]byte
	for _, e := range im.entries {
		h.Write([]byte(e.path))
		binary.BigEndian.PutUint64(number[:], uint64(e.node)<<1|uint64(len(e.data))<<32)
		h.Write(number[:])
		h.Write(e.data)
	}
	return [32]byte(h.Sum(nil))
}

// Make makes the folder at top, with real files. A file with two names becomes
// one file with two links.
func (im *Image) Make(top string) error {
	if err := os.Mkdir(top, 0o700); err != nil {
		return err
	}
	made := map[int]string{}
	for _, e := range im.entries {
		path := filepath.Join(top, e.path)
		var err error
		switch {
		case e.dir:
			err = os.Mkdir(path, 0o700)
		case made[e.node] != "":
			err = os.Link(made[e.node], path)
		default:
			err = os.WriteFile(path, e.data, 0o600)
			made[e.node] = path
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// String lists the content of the folder.
func (im *Image) String() string {
	var b strings.Builder
	for _, e := range im.entries {
		if e.dir {
			fmt.Fprintf(&b, "     %s/\n", e.path)
		} else {
			fmt.Fprintf(&b, "     %s (%d bytes)\n", e.path, len(e.data))
		}
	}
	return b.String()
}
