package croft

import (
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/keep"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// letter is one request of a caller that reads its answer when it comes to it. A copy sent again is another letter.
type letter struct {
	submission
	attempt int // the caller's own number
	box     *mail

	// Set when it is answered. The answer is one of a batch: whoever keeps it keeps them all.
	answer *store.Answer
	sent   clock.Instant
	after  *letter // in the box
}

// address makes the letter ready to be sent once. The request, of which there is one, must not change any more.
func (l *letter) address(box *mail, request []tenure.Request, at lane, attempt int) *submission {
	l.box, l.attempt = box, attempt
	l.submission = submission{requests: request, lane: at, to: l}
	return &l.submission
}

func (l *letter) receive(answers []store.Answer, sent clock.Instant) {
	l.answer, l.sent = &answers[0], sent
	l.box.put(l)
}

// open is the answer, once. The letter lets go of it: whoever waits long must not keep the answers of all who were in one batch with it.
func (l *letter) open() keep.Answered {
	answer := l.answer
	l.answer = nil
	return keep.Answered{Attempt: l.attempt, Sent: l.sent, Answer: *answer}
}

// mail holds the answers to one caller until it reads them.
type mail struct {
	mu          sync.Mutex
	first, last *letter
	rung        bool          // there is something to see elsewhere
	bell        chan struct{} // of whoever waits for either; else nil
}

func (m *mail) put(l *letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.first = l
	} else {
		m.last.after = l
	}
	m.last = l
	m.sound()
}

// take is the answer that came first of those not read, or nil.
func (m *mail) take() *letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next()
}

// next is take for a caller that holds the mutex.
func (m *mail) next() *letter {
	l := m.first
	if l == nil {
		return nil
	}
	if m.first = l.after; m.first == nil {
		m.last = nil
	}
	return l
}

// ring wakes the caller, now or as soon as it waits, to look at something else than its mail.
func (m *mail) ring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rung = true
	m.sound()
}

// sound wakes whoever waits. The caller holds the mutex.
func (m *mail) sound() {
	if m.bell != nil {
		select {
		case m.bell <- struct{}{}:
		default:
		}
	}
}

// await waits until there is mail or the bell rings, d has passed, or one of the others is closed, and takes the mail if there is any. Then the bell goes on ringing: only who gets none
// looks at what it rang for.
func (c *Client) await(m *mail, d time.Duration, left, over <-chan struct{}) *letter {
	e := c.listen(d)
	defer c.unlisten(e)
	m.mu.Lock()
	m.bell = e.bell
	quiet := m.first == nil && !m.rung
	m.mu.Unlock()
	if quiet {
		select {
		case <-e.bell:
		case <-e.timer.C():
		case <-left:
		case <-over:
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bell = nil
	l := m.next()
	if l == nil {
		m.rung = false
	}
	return l
}

// ear is what a goroutine waits with. A client's are used again: to make a channel and a timer takes longer than all else about a short wait.
type ear struct {
	bell  chan struct{}
	timer clock.Timer
}

func (c *Client) listen(d time.Duration) *ear {
	e, used := c.ears.Get().(*ear)
	if !used {
		return &ear{bell: make(chan struct{}, 1), timer: c.clk.Timer(d)}
	}
	if again, can := e.timer.(clock.Resetter); can {
		again.Reset(d)
	} else {
		e.timer = c.clk.Timer(d)
	}
	return e
}

func (c *Client) unlisten(e *ear) {
	e.timer.Stop()
	select {
	case <-e.bell: // for who listened before
	default:
	}
	c.ears.Put(e)
}
