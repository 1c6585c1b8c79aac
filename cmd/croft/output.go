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

// sink is the standard output. It remembers the first error, so that commands print without looking and whoever must know asks.
type sink struct {
	w    io.Writer
	err  error
	told bool // the user knows of the error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

// gone reports whether the reader went away, which is its right: head has seen enough.
func (s *sink) gone() bool { return errors.Is(s.err, syscall.EPIPE) }

// close returns the exit code that lost output asks for: none if its reader went away.
func (s *sink) close(stderr io.Writer) int {
	if s.err == nil || s.gone() || s.told {
		return 0
	}
	s.told = true
	fmt.Fprintf(stderr, "croft: the output could not be written: %v\n", s.err)
	return exitFailed
}

// terminal returns the terminal's width, and whether w is one.
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
	_ = enc.Encode(v) // the sink remembers what went wrong
}

// when is a time in JSON: RFC 3339 in UTC with microseconds, null if there is none.
type when time.Time

// MarshalJSON writes the time.
func (w when) MarshalJSON() ([]byte, error) {
	if time.Time(w).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(w).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
}

// recordView is a record in JSON. The names are fixed: programs rely on them. In a history, null is what is not remembered of a term.
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

// viewOf is the record as it counts at now: free once its deadline has passed.
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

// leaseView is a lease in JSON, secret included: what acquire prints.
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

// What is looked for in messages: URLs, and leases.
var (
	urlText   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"']+`)
	leaseText = regexp.MustCompile(`(croft-lease1:[^:\s]*:)[^:\s]+`)
)

// redact is the last net under messages: whoever wrote them, neither a URL's password nor a lease's secret gets through.
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
