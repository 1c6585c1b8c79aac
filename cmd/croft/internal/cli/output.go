package cli

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

// Sink is the standard output. It remembers the first error. So commands print
// without checking, and those that must know look at err.
type Sink struct {
	W        io.Writer
	Err      error
	Reported bool // the error has been printed
}

func (s *Sink) Write(p []byte) (int, error) {
	if s.Err != nil {
		return 0, s.Err
	}
	n, err := s.W.Write(p)
	s.Err = err
	return n, err
}

// gone reports whether the reader of a pipe went away. That is no error: head,
// for example, has read enough.
func (s *Sink) gone() bool { return errors.Is(s.Err, syscall.EPIPE) }

// Close prints the error of the standard output, if there is one, and returns
// the exit code. A reader that went away is no error.
func (s *Sink) Close(stderr io.Writer) int {
	if s.Err == nil || s.gone() || s.Reported {
		return 0
	}
	s.Reported = true
	fmt.Fprintf(stderr, "croft: the output could not be written: %v\n", s.Err)
	return ExitFailed
}

// TerminalWidth returns the width of the terminal w, and whether w is a
// terminal.
func TerminalWidth(w io.Writer) (width int, is bool) {
	if s, ok := w.(*Sink); ok {
		w = s.W
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

// Confirm prints a line that says what a command has done. It goes to standard
// output, or to standard error if the output of the surrounding command is
// data.
func (a *App) Confirm(format string, args ...any) {
	to := io.Writer(a.Stdout)
	if os.Getenv(EnvConfirm) == "stderr" {
		to = a.Stderr
	}
	fmt.Fprintf(to, format+"\n", args...)
}

// Print writes one JSON object on one line.
func (a *App) Print(v any) {
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the sink remembers a failed write
}

// PrintRaw writes the bytes of a checkpoint or an item as they are. On a
// terminal it escapes those that could move the cursor or change the text
// around them, because others have chosen them.
func (a *App) PrintRaw(data []byte) {
	if _, is := TerminalWidth(a.Stdout); is {
		text := string(data)
		if data = []byte(Lines(text)); text != string(data) {
			fmt.Fprintln(a.Stderr, "croft: the terminal gets this escaped; write it to a file or a pipe "+
				"to have it as it is")
		}
	}
	_, _ = a.Stdout.Write(data) // the sink remembers a failed write
}

// When is a time in JSON: RFC 3339 in UTC with microseconds, or null for the
// zero time.
type When time.Time

// MarshalJSON writes the time.
func (w When) MarshalJSON() ([]byte, error) {
	if time.Time(w).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(w).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
}

// RecordView is a record in JSON. Programs rely on the names, so they never
// change. In a history, fields that the store does not remember are null.
type RecordView struct {
	Key        string       `json:"key"`
	Token      fence.Token  `json:"token"`
	Owner      string       `json:"owner"`
	Instance   string       `json:"instance"`
	State      string       `json:"state"` // as StateOf says it
	Cause      tenure.Cause `json:"cause"`
	Actor      string       `json:"actor"`
	Note       string       `json:"note"`
	Acquired   When         `json:"acquired"`
	Renewed    When         `json:"renewed"`
	Deadline   When         `json:"deadline"`
	TTL        *string      `json:"ttl"`
	Progress   *string      `json:"progress"`
	ProgressAt When         `json:"progress_at"`
	Checkpoint []byte       `json:"checkpoint"`
	Terms      *int64       `json:"terms"`
	Guards     []string     `json:"guards"`
	Every      *string      `json:"every"`
	Succeeded  When         `json:"succeeded"`
	Due        When         `json:"due"`
	HoldUntil  When         `json:"hold_until"`
	Ended      tenure.End   `json:"ended"`
}

// Targets are the targets of guards as listings show them.
func Targets(guards []string) []string {
	shown := make([]string, len(guards))
	for i, target := range guards {
		shown[i] = store.Redact(target)
	}
	return shown
}

// ViewOf is the record as it counts at now: with the state and the facts that
// people are shown. Work without a period has no every, and is never due.
func ViewOf(rec tenure.Record, now time.Time) RecordView {
	ttl := rec.TTL.String()
	state, _ := StateOf(rec, now)
	v := RecordView{
		Key: rec.Key, Token: rec.Token, Owner: rec.Owner, Instance: rec.Instance,
		State: state, Cause: rec.Cause, Actor: rec.Actor, Note: rec.Note,
		Acquired: When(rec.Acquired), Renewed: When(rec.Renewed), Deadline: When(rec.Deadline), TTL: &ttl,
		Progress: &rec.Progress, ProgressAt: When(rec.ProgressAt),
		Checkpoint: []byte(rec.Checkpoint), Terms: &rec.Terms, Guards: Targets(rec.Guards),
		Succeeded: When(rec.Succeeded), Due: When(rec.Due(rec.Every)),
		Ended: rec.Ended,
	}
	if rec.Ended == tenure.EndReleased { // a hold counts after a success
		v.HoldUntil = When(rec.HoldUntil)
	}
	if rec.Every > 0 {
		every := rec.Every.String()
		v.Every = &every
	}
	return v
}

// LeaseView is a lease in JSON, with its secret, as acquire prints it.
type LeaseView struct {
	Key      string       `json:"key"`
	Token    fence.Token  `json:"token"`
	Stamp    string       `json:"stamp"`
	Lease    string       `json:"lease"`
	Owner    string       `json:"owner"`
	Cause    tenure.Cause `json:"cause"`
	Deadline When         `json:"deadline"`
	TTL      string       `json:"ttl"`
}

// LeaseOf is the lease of a deed in JSON.
func LeaseOf(d tenure.Deed, rec tenure.Record) LeaseView {
	return LeaseView{
		Key: d.Key, Token: d.Token, Stamp: d.Stamp().String(), Lease: d.Text(),
		Owner: rec.Owner, Cause: rec.Cause, Deadline: When(rec.Deadline), TTL: rec.TTL.String(),
	}
}

// These find secrets in messages.
var (
	urlText   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"']+`)
	leaseText = regexp.MustCompile(`(croft-lease1:[^:\s]*:)[^:\s]+`)
)

// plainWords says in words for everybody what Go's library says to programmers.
var plainWords = strings.NewReplacer(
	"context deadline exceeded", "no answer came in time", "context canceled", "it was interrupted")

// Redact removes the passwords of URLs and the secrets of leases from a
// message. It is the last safeguard for messages of any origin. It also puts
// the tries that client libraries list, each on a line of its own, on one line,
// and says repeated tries once.
func (a *App) Redact(message string) string {
	var tries []string
	for _, try := range strings.Split(plainWords.Replace(message), "\n\t") {
		try = strings.TrimPrefix(try, "hostname resolving error: ") // pgx says it in the first try alone
		if last := len(tries) - 1; last > 0 && strings.HasPrefix(try, tries[last]) {
			tries = tries[:last] // the last try may have advice behind it
		}
		tries = append(tries, try)
	}
	message = strings.Join(tries, " ")
	message = urlText.ReplaceAllStringFunc(message, store.Redact)
	whole, _ := readStore(os.Getenv(envStoreFile))
	known := append(strings.Fields(os.Getenv(EnvRaise)), a.StoreURL, os.Getenv(EnvStore), whole)
	for _, raw := range append(known, a.configSecrets()...) {
		if password := passwordOf(raw); password != "" {
			message = strings.ReplaceAll(message, password, "xxxxx")
		}
	}
	return leaseText.ReplaceAllString(message, "$1[secret]")
}
