package sqlite

import (
	"bytes"
	"slices"

	"github.com/croft-dev/croft/tenure"
)

// mostRemembered bounds the records that a writer remembers; each takes some seven kilobytes.
const mostRemembered = 256

// remembered is a record as it was last packed or unpacked. It counts only while the database holds these very bytes, so nothing that others do can make it wrong.
type remembered struct {
	packed []byte
	record tenure.Record
}

// recall unpacks a record, or remembers having done so.
func (w *writer) recall(key string, packed []byte) (tenure.Record, error) {
	if m, ok := w.memory[key]; ok && bytes.Equal(m.packed, packed) {
		return m.record, nil
	}
	rec, err := unpack(key, packed)
	if err == nil {
		w.remember(&rec, packed)
	}
	return rec, err
}

// remember keeps a record with its packed form. Nobody may change what it refers to any more.
func (w *writer) remember(rec *tenure.Record, packed []byte) {
	if _, known := w.memory[rec.Key]; !known && len(w.memory) >= mostRemembered {
		clear(w.memory)
	}
	w.memory[rec.Key] = remembered{slices.Clone(packed), *rec}
}
