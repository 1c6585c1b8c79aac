package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reader reads the histories in a folder while they grow.
type Reader struct {
	folder string
	files  map[string]*tail
}

// tail is one file, and how far it has been read.
type tail struct {
	process string
	offset  int64
	rest    []byte // an incomplete last line
	ops     []Op
	at      map[int64]int // index in ops, by operation number
}

// NewReader reads the folder that recorders write to.
func NewReader(folder string) *Reader { return &Reader{folder: folder, files: map[string]*tail{}} }

// Load reads the histories in a folder.
func Load(folder string) ([]Op, error) { return NewReader(folder).Read() }

// Read returns all operations so far, ordered by the time they began. It adds
// the outcomes that were written since the last Read.
func (r *Reader) Read() ([]Op, error) {
	paths, err := filepath.Glob(filepath.Join(r.folder, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var ops []Op
	for _, path := range paths {
		t := r.files[path]
		if t == nil {
			t = &tail{process: strings.TrimSuffix(filepath.Base(path), suffix), at: map[int64]int{}}
			r.files[path] = t
		}
		if err := t.read(path); err != nil {
			return nil, fmt.Errorf("history %s: %w", path, err)
		}
		ops = append(ops, t.ops...)
	}
	slices.SortStableFunc(ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Number, b.Number))
	})
	return ops, nil
}

func (t *tail) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	t.offset += int64(len(text))
	text = append(t.rest, text...)
	for {
		whole, rest, found := bytes.Cut(text, []byte("\n"))
		if !found { // the line is still being written, or its process was killed
			t.rest = bytes.Clone(text)
			return nil
		}
		if err := t.take(whole); err != nil {
			return err
		}
		text = rest
	}
}

func (t *tail) take(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%q is no line of a history: %w", text, err)
	}
	i, begun := t.at[l.ID]
	switch {
	case l.Call != nil && begun:
		return fmt.Errorf("operation %d begins twice", l.ID)
	case l.Call != nil:
		i = len(t.ops)
		t.at[l.ID] = i
		t.ops = append(t.ops, Op{Process: t.process, Number: l.ID, Call: *l.Call, Begin: l.At, End: Never})
	case !begun:
		return fmt.Errorf("operation %d ends without having begun", l.ID)
	}
	if l.Result != nil {
		t.ops[i].Result, t.ops[i].End = *l.Result, l.At
	}
	return nil
}
