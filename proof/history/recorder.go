package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// suffix is the end of a history file's name. The process name comes before it.
const suffix = ".jsonl"

// line is one line of a history file. A beginning has a Call, an end has a
// Result. Operations that take no time have both in one line.
type line struct {
	ID     int64   `json:"id"`
	At     int64   `json:"at"`
	Call   *Call   `json:"call,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Recorder writes the history of one process. Its methods are safe for
// concurrent use. Each line goes to the system in a write of its own, so it
// survives when the process is killed. Lines are not synced, so a power cut may
// lose them.
type Recorder struct {
	mu     sync.Mutex
	file   *os.File
	next   int64
	closed bool
}

// NewRecorder creates the history file of a process in a folder. It fails if
// the file exists: every process needs a name of its own.
func NewRecorder(folder, process string) (*Recorder, error) {
	file, err := os.OpenFile(
		filepath.Join(folder, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644,
	)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", process, err)
	}
	return &Recorder{file: file}, nil
}

// Close ends the history. A call may still be in flight then, if a client
// closes while a batch hangs. Its end is not written, so its outcome stays
// unknown.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.file.Close()
}

// Begin records that an operation is about to start, and returns its number for
// End. The line has reached the system when Begin returns.
func (r *Recorder) Begin(c Call) int64 { return r.write(line{At: Now(), Call: &c}) }

// End records the outcome.
func (r *Recorder) End(id int64, out Result) { r.write(line{ID: id, At: Now(), Result: &out}) }

// Note records something that takes no time. at is a time returned by Now.
func (r *Recorder) Note(at int64, c Call, out Result) {
	r.write(line{At: at, Call: &c, Result: &out})
}

// write panics when it fails: with a line missing, Check would blame the wrong
// process or none.
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
