package observe

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/croft-dev/croft/guard/gate"
)

// The labels for events of gates.
const (
	guardHTTP = "http"
	notSent   = "not_sent"
	inDoubt   = "in_doubt"
	refused   = "refused"
	// unstamped writes are let in without a check, where that is allowed.
	unstamped = "unstamped"
)

// ever bounds the time for which a resource counts as closed. Times end before
// croft.Forever does.
const ever = 100 * 365 * 24 * time.Hour

// Gate takes one event of a gate or proxy. Set httpfence.Options.Observe to it.
// The resource is no label, because there are any number of resources.
func (m *Metrics) Gate(e gate.Event) {
	label := m.spaces.of
	if e.Kind == gate.Unsure || (e.Kind == gate.Refused || e.Kind == gate.Observed) &&
		!slices.Contains([]string{"stale", "collision", "repeated"}, e.Code) {
		label = m.spaces.known // no mark has ever known the key: it may be forged
	}
	space := label(e.Key)
	switch e.Kind {
	case gate.Admitted:
		if e.Key == "" {
			m.gateWrite(space, unstamped)
			return
		}
		m.gateWrite(space, admitted)
	case gate.Refused:
		if e.Status == http.StatusBadGateway { // the write had been let in before
			m.unanswered.WithLabelValues(space, notSent).Inc()
			return
		}
		m.gateWrite(space, gateOutcome(e))
	case gate.Observed:
		m.gateWrite(space, admitted)
		m.observed.WithLabelValues(space, guardHTTP, gateOutcome(e)).Inc()
	case gate.Unsure:
		decision := admitted
		if e.Status != 0 {
			decision = refused
		}
		m.unsure.WithLabelValues(space, decision).Inc()
	case gate.InDoubt:
		m.unanswered.WithLabelValues(space, inDoubt).Inc()
	case gate.Answered:
		m.answers.WithLabelValues(statusClass(e.Status)).Observe(e.Took.Seconds())
	case gate.Taken, gate.Left, gate.Closed, gate.Opened:
		m.resource(e)
	}
}

func (m *Metrics) gateWrite(space, outcome string) {
	m.expect(space, guardHTTP)
	if _, done := m.expected.LoadOrStore([3]string{space, guardHTTP, inDoubt}, true); !done {
		m.unanswered.WithLabelValues(space, notSent)
		m.unanswered.WithLabelValues(space, inDoubt)
		m.unsure.WithLabelValues(space, admitted)
		m.unsure.WithLabelValues(space, refused)
		m.writes.WithLabelValues(space, guardHTTP, unstamped)
	}
	m.writes.WithLabelValues(space, guardHTTP, outcome).Inc()
}

// gateOutcome names a refusal like those of other guards. A resource that is
// closed, or that another gate has, is busy.
func gateOutcome(e gate.Event) string {
	switch e.Code {
	case "held":
		return "busy"
	case "stale", "collision", "wrong_key", "repeated", "not_owned", "invalid":
		return e.Code
	}
	return failed
}

// statusClass returns the class of an answer's status: 2xx and so on.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "none" // middleware does not see the status
	}
	return strconv.Itoa(status/100) + "xx"
}

// resource records which resources a gate has, and which of them are closed
// until when. There is no event when that time is over, unless somebody writes.
func (m *Metrics) resource(e gate.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gated = true
	switch e.Kind {
	case gate.Taken:
		m.taken[e.Resource] = true
	case gate.Closed:
		m.closed[e.Resource] = m.now().Add(min(e.For, ever))
	case gate.Opened:
		delete(m.closed, e.Resource)
	case gate.Left: // the next gate reports it again
		delete(m.taken, e.Resource)
		delete(m.closed, e.Resource)
	}
}

// resources counts the recorded resources, and says whether there is a gate at
// all.
func (m *Metrics) resources() (taken, closed int, gated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for resource, until := range m.closed {
		if !now.Before(until) {
			delete(m.closed, resource)
		}
	}
	return len(m.taken), len(m.closed), m.gated
}
