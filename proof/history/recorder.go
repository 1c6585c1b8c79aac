package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// suffix is what the names of history files end with; before it is the name of the process.
const suffix = ".jsonl"

// line is one line of a history file. What begins has a Call, what ends has a Result, what takes no time has both.
type line struct {
	ID     int64   `json:"id"`
	At     int64   `json:"at"`
	Call   *Call   `json:"call,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Recorder writes the history of one process. Its methods are safe for concurrent use. Lines are handed to the system one by one, so that they are there when the
// process is killed; they are not synced, so a power cut may take them.
type Recorder struct {
	mu     sync.Mutex
	file   *os.File
	next   int64
	closed bool
}

// NewRecorder begins the history of a process in a folder. The name must be its alone.
func NewRecorder(folder, process string) (*Recorder, error) {
	file, err := os.OpenFile(
		filepath.Join(folder, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644,
	)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", process, err)
	}
	return &Recorder{file: file}, nil
}

// Close ends the history. A call may still be on its way then, when a client
// closes and a batch hangs. Its end is not written: a call without an end has
// an unknown outcome, and that is true of it.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.file.Close()
}

// Begin notes that something is about to be asked for, and returns its number for End. It has reached the system when Begin returns.
func (r *Recorder) Begin(c Call) int64 { return r.write(line{At: Now(), Call: &c}) }

// End notes the outcome.
func (r *Recorder) End(id int64, out Result) { r.write(line{ID: id, At: Now(), Result: &out}) }

// Note notes something that was so at a moment, as told by Now.
func (r *Recorder) Note(at int64, c Call, out Result) {
	r.write(line{At: at, Call: &c, Result: &out})
}

// write panics when it fails: a history with a hole in it would accuse, or acquit, the wrong one.
func (r *Recorder) write(l line) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && l.Call == nil {
		return l.ID
	}
	if l.ID == 0 {
		r.next++
		l.ID = r.next
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
	return l.ID
}
