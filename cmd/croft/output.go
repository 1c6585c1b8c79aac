package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// sink is the standard output. It remembers the first error. So commands print
// without checking, and those that must know look at err.
type sink struct {
	w        io.Writer
	err      error
	reported bool // the error has been printed
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

// gone reports whether the reader of a pipe went away. That is no error: head,
// for example, has read enough.
func (s *sink) gone() bool { return errors.Is(s.err, syscall.EPIPE) }

// close prints the error of the standard output, if there is one, and returns
// the exit code. A reader that went away is no error.
func (s *sink) close(stderr io.Writer) int {
	if s.err == nil || s.gone() || s.reported {
		return 0
	}
	s.reported = true
	fmt.Fprintf(stderr, "croft: the output could not be written: %v\n", s.err)
	return exitFailed
}

// terminal returns the width of the terminal w, and whether w is a terminal.
func terminal(w io.Writer) (width int, is bool) {
	if s, ok := w.(*sink); ok {
		w = s.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}

// print writes one JSON object on one line.
func (a *app) print(v any) {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the sink remembers a failed write
}

// when is a time in JSON: RFC 3339 in UTC with microseconds, or null for the
// zero time.
type when time.Time

// MarshalJSON writes the time.
func (w when) MarshalJSON() ([]byte, error) {
	if time.Time(w).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(w).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
}

// recordView is a record in JSON. Programs rely on the names, so they never
// change. In a history, fields that the store does not remember are null.
type recordView struct {
	Key        string       `json:"key"`
	Token      fence.Token  `json:"token"`
	Owner      string       `json:"owner"`
	Instance   string       `json:"instance"`
	State      tenure.State `json:"state"`
	Cause      tenure.Cause `json:"cause"`
	Actor      string       `json:"actor"`
	Note       string       `json:"note"`
	Acquired   when         `json:"acquired"`
	Renewed    when         `json:"renewed"`
	Deadline   when         `json:"deadline"`
	TTL        *string      `json:"ttl"`
	Progress   *string      `json:"progress"`
	ProgressAt when         `json:"progress_at"`
	Terms      *int64       `json:"terms"`
	Guards     []string     `json:"guards"`
}

// viewOf is the record as it counts at now. A held record is free after its
// deadline.
func viewOf(rec tenure.Record, now time.Time) recordView {
	ttl := rec.TTL.String()
	v := recordView{
		Key: rec.Key, Token: rec.Token, Owner: rec.Owner, Instance: rec.Instance,
		State: rec.StateAt(now), Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note,
		Acquired: when(rec.Acquired), Renewed: when(rec.Renewed), Deadline: when(rec.Deadline), TTL: &ttl,
		Progress: &rec.Progress, ProgressAt: when(rec.ProgressAt), Terms: &rec.Terms, Guards: []string{},
	}
	for _, target := range rec.Guards {
		v.Guards = append(v.Guards, store.Redact(target))
	}
	return v
}

// leaseView is a lease in JSON, with its secret, as acquire prints it.
type leaseView struct {
	Key      string       `json:"key"`
	Token    fence.Token  `json:"token"`
	Stamp    string       `json:"stamp"`
	Lease    string       `json:"lease"`
	Owner    string       `json:"owner"`
	Cause    tenure.Cause `json:"cause"`
	Deadline when         `json:"deadline"`
	TTL      string       `json:"ttl"`
}

func leaseOf(d tenure.Deed, rec tenure.Record) leaseView {
	return leaseView{
		Key: d.Key, Token: d.Token, Stamp: d.Stamp().String(), Lease: d.Text(),
		Owner: rec.Owner, Cause: rec.Cause, Deadline: when(rec.Deadline), TTL: rec.TTL.String(),
	}
}

// These find secrets in messages.
var (
	urlText   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"']+`)
	leaseText = regexp.MustCompile(`(croft-lease1:[^:\s]*:)[^:\s]+`)
)

// redact removes the passwords of URLs and the secrets of leases from a
// message. It is the last safeguard for messages of any origin.
func (a *app) redact(message string) string {
	message = urlText.ReplaceAllStringFunc(message, store.Redact)
	whole, _ := readStore(os.Getenv(envStoreFile))
	for _, raw := range append(strings.Fields(os.Getenv(envRaise)), a.storeURL, os.Getenv(envStore), whole) {
		if password := passwordOf(raw); password != "" {
			message = strings.ReplaceAll(message, password, "xxxxx")
		}
	}
	return leaseText.ReplaceAllString(message, "$1[secret]")
}
