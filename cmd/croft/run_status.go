package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/supervise"
)

// verdict is the outcome of a run in one word.
type verdict string

// These are the verdicts of a run. With done and failed the exit code is the
// command's own.
const (
	verdictRunning    verdict = "running"
	verdictDone       verdict = "done"        // the command exited 0
	verdictFailed     verdict = "failed"      // the command ended otherwise
	verdictHeld       verdict = "held"        // not your turn: the command was not started
	verdictLost       verdict = "lost"        // the lease ended before the command did
	verdictNotStarted verdict = "not_started" // something kept the command from starting
)

// runStatus is the content of --status-file.
type runStatus struct {
	path    string
	key     string
	token   fence.Token
	verdict verdict
	exit    int
	loss    croft.Loss
	message string
	started time.Time
	ran     *supervise.Status
}

// newRunStatus writes the file once, so that a bad path is an error before the
// run begins.
func newRunStatus(path, key string) (*runStatus, error) {
	s := &runStatus{path: path, key: key, started: time.Now()}
	if path == "" {
		return s, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, cli.Invalid("status file: %v", err)
	}
	s.path = abs
	s.verdict = verdictNotStarted
	if err := s.save(); err != nil {
		return nil, cli.Invalid("status file: %v; name a file in a directory that can be written", err)
	}
	return s, nil
}

// command notes how the command ended.
func (s *runStatus) command(status supervise.Status) { s.ran = &status }

// write saves the present status. It prints an error and goes on if it cannot.
func (s *runStatus) write(stderr io.Writer) {
	if err := s.save(); err != nil {
		fmt.Fprintf(stderr, "croft: the status file could not be written: %v\n", err)
	}
}

// save replaces the file, so readers never see half of it.
func (s *runStatus) save() error {
	if s.path == "" {
		return nil
	}
	view := struct {
		Key     string      `json:"key"`
		Token   fence.Token `json:"token"`
		Verdict verdict     `json:"verdict"`
		Exit    *int        `json:"exit"`
		By      string      `json:"by,omitempty"` // whose code exit is: "command" or "croft"
		Command *int        `json:"command_exit"`
		Signal  string      `json:"command_signal,omitempty"`
		Loss    croft.Loss  `json:"loss,omitempty"`
		Message string      `json:"message,omitempty"`
		Started cli.When    `json:"started"`
		Ended   cli.When    `json:"ended"`
	}{Key: s.key, Token: s.token, Verdict: s.verdict, Loss: s.loss, Message: s.message, Started: cli.When(s.started)}
	if s.verdict != verdictRunning {
		view.Exit, view.Ended, view.By = &s.exit, cli.When(time.Now()), "croft"
		if s.ran != nil && (s.verdict == verdictDone || s.verdict == verdictFailed) {
			view.By = "command"
		}
	}
	if s.ran != nil {
		code := s.ran.ExitCode()
		view.Command = &code
		if s.ran.Signal != 0 {
			view.Signal = s.ran.Signal.String()
		}
	}
	data, err := json.Marshal(view)
	if err != nil {
		return err
	}
	return cli.ReplaceFile(s.path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
