package cli

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// silence knows for how long the store has owed an answer. The goroutines of a
// client write it, and the progress bar's goroutine reads it.
type silence struct {
	mu    sync.Mutex
	since time.Time // zero if no answer is owed
	told  string    // why there was none, as last told
}

// begin notes that an answer has been owed since then, if not for longer.
func (s *silence) begin(then time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = then
	}
}

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// lasts returns how long the store has been silent. It is 0 if that is too
// short to be worth a word.
func (s *silence) lasts() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || time.Since(s.since) < progressAfter {
		return 0
	}
	return time.Since(s.since)
}

// isNew reports whether why differs from the reason before.
func (s *silence) isNew(why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.told
	s.told = why
	return why != before
}

// AskOnTerminal shows on standard error, where Progress would show a bar, that
// the store or the ledger does not answer. stop removes the line. It may be
// called twice.
func (a *App) AskOnTerminal() (stop func()) { return a.WaitOnTerminal("", 0, nil) }

// WaitOnTerminal is AskOnTerminal. If most is not 0, it also shows that croft
// waits for a key or a queue, who holds it, and for how long it has waited.
// holder asks the store once. Answered and NoAnswer say what the store does.
func (a *App) WaitOnTerminal(key string, most time.Duration, holder func() tenure.Record) (stop func()) {
	var held atomic.Pointer[tenure.Record]
	p, end := a.startProgress(&progress{text: func(after time.Duration) string {
		if most <= 0 {
			return askLine(a.silence.lasts())
		}
		return waitLine(key, held.Load(), after, most, a.silence.lasts())
	}})
	if p == nil {
		return end
	}
	a.silence.begin(time.Now())
	if most > 0 {
		go func() {
			rec := holder()
			held.Store(&rec)
		}()
	}
	return func() {
		end()
		a.Answered()
	}
}

// askLine is the line of AskOnTerminal. It is empty if the store is not silent.
func askLine(silent time.Duration) string {
	if silent == 0 {
		return ""
	}
	return fmt.Sprintf("croft: waiting for the store's answer: %s", silent.Round(time.Second))
}

// waitLine is the line of WaitOnTerminal. The holder is nil while it is not
// known.
func waitLine(key string, holder *tenure.Record, after, most, silent time.Duration) string {
	line := "croft: waiting for " + Word(key)
	if holder != nil && holder.State == tenure.Held {
		line += ", held by " + Word(holder.Owner)
	}
	line += ": " + after.Truncate(time.Second).String()
	if most != croft.Forever {
		line += " of " + most.String()
	}
	if silent > 0 {
		line += fmt.Sprintf("; no answer from the store for %s", silent.Round(time.Second))
	}
	return line
}

// tellRetries returns an observer that also says on a terminal why croft asks
// the store again.
func (a *App) tellRetries(observe func(croft.Event)) func(croft.Event) {
	if _, isTerminal := TerminalWidth(a.Stderr); !isTerminal || a.JSON {
		return observe
	}
	return func(e croft.Event) {
		if observe != nil {
			observe(e)
		}
		a.heard(e)
	}
}

// heard notes whether the store has answered.
func (a *App) heard(e croft.Event) {
	switch {
	case e.Kind == croft.EventCall && e.Outcome == croft.OutcomeUnknown:
		a.silence.begin(time.Now().Add(-e.Took))
	case e.Kind == croft.EventCall:
		a.Answered()
	case e.Kind == croft.EventUnknown:
		a.NoAnswer(" about "+Word(e.Key), e.Err)
	}
}

// Answered takes back that the store does not answer.
func (a *App) Answered() { a.silence.end() }

// NoAnswer says on a terminal why the store is asked again, each reason once.
// about may say of what.
func (a *App) NoAnswer(about string, err error) {
	if _, isTerminal := TerminalWidth(a.Stderr); !isTerminal || a.JSON || err == nil {
		return
	}
	a.silence.begin(time.Now())
	why := strings.TrimPrefix(Lines(a.Redact(err.Error())), store.ErrUnknown.Error()+": ")
	if a.silence.isNew(why) {
		a.sayAbove("croft: no answer" + about + " yet: " + why + "\n")
	}
}
