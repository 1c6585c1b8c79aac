package cli

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

// A run with metrics also counts the writes of "croft write" inside it, which
// are other processes. They append a line for every write to a file beside the
// command's lease. A run without metrics has no such file.

// tallySuffix is added to the name of the lease's file.
const tallySuffix = ".writes"

// tallied is one write, as a line of the file.
type tallied struct {
	Target string      `json:"target"`
	Stamp  fence.Stamp `json:"stamp"`
	Code   string      `json:"code,omitempty"` // "" if admitted
	// Observed is the code that an admitted write would have been refused with.
	Observed string `json:"observed,omitempty"`
}

// TallyWrite reports a write to the run that this process is part of, if that
// run counts writes. refusal is why a write was let in that would have been
// refused. TallyWrite ignores all errors, because the write is already done.
func TallyWrite(target string, s fence.Stamp, refusal, err error) {
	lease, isFile := strings.CutPrefix(os.Getenv(EnvLease), "@")
	if !isFile {
		return
	}
	// Without O_CREATE: only the run makes the file.
	f, openErr := os.OpenFile(lease+tallySuffix, os.O_WRONLY|os.O_APPEND, 0)
	if openErr != nil {
		return
	}
	defer f.Close()
	t := tallied{Target: target, Stamp: s}
	if refusal != nil {
		t.Observed = talliedCode(refusal)
	}
	if err != nil {
		t.Code = talliedCode(err)
	}
	if text, err := json.Marshal(t); err == nil {
		_, _ = f.Write(append(text, '\n')) // in one call, because other processes append, too
	}
}

func talliedCode(err error) string {
	if errors.Is(err, guard.ErrBusy) {
		return "busy"
	}
	return OutcomeOf(err).code
}

// talliedErrors maps codes back to errors, for those that metrics distinguish.
var talliedErrors = map[string]error{
	"stale": fence.ErrStale, "collision": fence.ErrCollision, "wrong_key": fence.ErrWrongKey,
	"repeated": fence.ErrRepeated, "not_owned": tenure.ErrNotOwned, "invalid": fence.ErrInvalid, "busy": guard.ErrBusy,
}

// Tally counts every line of the file once. mu guards its fields.
type Tally struct {
	m *observe.Metrics

	mu sync.Mutex
	// file is nil if there is none. It stays open, because the folder may be
	// removed before the last count.
	file *os.File
	read int64
}

// Begin creates the file beside a lease.
func (t *Tally) Begin(lease string) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file, err = os.OpenFile(lease+tallySuffix, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// End counts the last lines and closes the file.
func (t *Tally) End() {
	t.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// count counts the lines that were added. It ignores errors, because the work
// is more important.
func (t *Tally) count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	// The command may write to the file faster than it is read.
	for range mostTallied / tallyPart {
		if !t.countPart() {
			return
		}
	}
}

// These bound what one count reads in all, and at a time. The command decides
// how long the file is.
const (
	mostTallied = 64 << 20
	tallyPart   = 1 << 20
)

// countPart counts the lines of one read. It reports whether there may be more.
// The caller holds the mutex.
func (t *Tally) countPart() bool {
	text, err := io.ReadAll(io.NewSectionReader(t.file, t.read, tallyPart))
	if err != nil {
		return false
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // the rest is still being written
	if whole == 0 && len(text) == tallyPart {
		whole = len(text) // no croft writes a line that long
	}
	t.read += int64(whole)
	for line := range bytes.Lines(text[:whole]) {
		var w tallied
		if json.Unmarshal(line, &w) != nil {
			continue
		}
		t.m.Write(context.Background(), observe.Write{
			Target: w.Target, Stamp: w.Stamp, Refusal: talliedError(w.Observed), Err: talliedError(w.Code),
		})
	}
	return len(text) == tallyPart
}

// talliedError returns the error that a code stands for, or nil if it is empty.
func talliedError(code string) error {
	if code == "" {
		return nil
	}
	if err := talliedErrors[code]; err != nil {
		return err
	}
	return errors.New(code)
}
