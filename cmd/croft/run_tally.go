package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/observe"
	"github.com/croft-dev/croft/tenure"
)

// A run with metrics counts what "croft write" does inside it, though that is another process: beside the lease that the command finds there is a file, to which
// every write appends a line. A run without metrics has no such file, and nothing is written.

// tallySuffix ends the name of that file; the rest is the lease's.
const tallySuffix = ".writes"

// tallied is one write, as a line of the file.
type tallied struct {
	Target string      `json:"target"`
	Stamp  fence.Stamp `json:"stamp"`
	Code   string      `json:"code,omitempty"` // "": admitted
}

// tallyWrite tells the run that this process is in of a write, if there is one that counts. The write is done: nothing about this may fail it.
func tallyWrite(target string, s fence.Stamp, err error) {
	lease, isFile := strings.CutPrefix(os.Getenv(envLease), "@")
	if !isFile {
		return
	}
	f, openErr := os.OpenFile(lease+tallySuffix, os.O_WRONLY|os.O_APPEND, 0) // one that is not there is not made
	if openErr != nil {
		return
	}
	defer f.Close()
	t := tallied{Target: target, Stamp: s}
	if err != nil {
		t.Code = talliedCode(err)
	}
	if text, err := json.Marshal(t); err == nil {
		_, _ = f.Write(append(text, '\n')) // in one piece: others append, too
	}
}

func talliedCode(err error) string {
	if errors.Is(err, guard.ErrBusy) {
		return "busy"
	}
	return outcomeOf(err).code
}

// talliedErrors is talliedCode read backwards, as far as metrics tell errors apart.
var talliedErrors = map[string]error{
	"stale": fence.ErrStale, "collision": fence.ErrCollision, "wrong_key": fence.ErrWrongKey,
	"repeated": fence.ErrRepeated, "not_owned": tenure.ErrNotOwned, "invalid": fence.ErrInvalid, "busy": guard.ErrBusy,
}

// tally counts the lines of the file, each once.
type tally struct {
	m *observe.Metrics

	mu   sync.Mutex
	file *os.File // kept open: whoever tidies up after the command may be quicker; nil when there is none
	read int64
}

// begin makes the file beside a lease.
func (t *tally) begin(lease string) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file, err = os.OpenFile(lease+tallySuffix, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// end counts the last of it.
func (t *tally) end() {
	t.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// count counts what has been added. What cannot be read is not counted: the work is more important.
func (t *tally) count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	for range mostTallied / tallyPart { // the command may write to the file faster than it is read
		if !t.countPart() {
			return
		}
	}
}

// What one count reads of the file at most, and at a time: the command decides
// how long the file is.
const (
	mostTallied = 64 << 20
	tallyPart   = 1 << 20
)

// countPart counts what one read yields, and reports whether there may be more.
// The caller holds the mutex.
func (t *tally) countPart() bool {
	text, err := io.ReadAll(io.NewSectionReader(t.file, t.read, tallyPart))
	if err != nil {
		return false
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // the rest is being written
	if whole == 0 && len(text) == tallyPart {
		whole = len(text) // no croft writes a line that long
	}
	t.read += int64(whole)
	for line := range bytes.Lines(text[:whole]) {
		var w tallied
		if json.Unmarshal(line, &w) != nil {
			continue
		}
		var refused error
		if w.Code != "" {
			if refused = talliedErrors[w.Code]; refused == nil {
				refused = errors.New(w.Code)
			}
		}
		t.m.Write(context.Background(), observe.Write{Target: w.Target, Stamp: w.Stamp, Err: refused})
	}
	return len(text) == tallyPart
}
