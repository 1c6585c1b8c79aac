package server

import (
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// Kind says what an event tells.
type Kind string

// The kinds of events.
const (
	// Answered: the server has answered an HTTP request, or a stream is over.
	Answered Kind = "answered"
	// Called: the store has answered a call, or has not.
	Called Kind = "called"
	// Acted: an operator's act was carried out, or refused. It is the audit
	// log.
	Acted Kind = "acted"
	// Failed: a look for the stream of all changes, or a page, has failed.
	Failed Kind = "failed"
)

// Event tells what happened.
type Event struct {
	Kind Kind
	// Identity and Remote say who asked, and from which address.
	Identity, Remote string
	// Took is how long it took.
	Took time.Duration

	// Route, Status and Code are those of an answer: the pattern of method and
	// path, the HTTP status, and the code of a refusal.
	Route  string
	Status int
	Code   string

	// Requests is how many requests of the law a call or an answer had.
	Requests int

	// Act, Key, Owner, Actor and Note are those of an operator's act.
	Act                tenure.Verb
	Key                string
	Owner, Actor, Note string

	// Err is for the operator of the server. It may name addresses and files.
	Err error
}

// called tells of a call of the store.
func (s *Server) called(requests int, took time.Duration, err error) {
	s.o.Observe(Event{Kind: Called, Requests: requests, Took: took, Err: err})
}

// audit tells of the acts by hand among requests that were answered.
func (s *Server) audit(c *call, q tenure.Request, err error) {
	if _, isNote := refusals.Noted(q); isNote || !q.Verb.ByHand() {
		return
	}
	s.acted(c, Event{Act: q.Verb, Key: q.Key, Owner: q.Owner, Actor: q.Actor, Note: q.Note, Err: err})
}

// acted tells of an act by hand. The act may have been refused for what it
// says, so its texts are cut to what the law allows.
func (s *Server) acted(c *call, e Event) {
	e.Kind, e.Identity, e.Remote = Acted, c.id.Name, c.RemoteAddr
	e.Act, e.Key = cut(e.Act, tenure.MaxName), cut(e.Key, fence.MaxKey)
	e.Owner, e.Actor, e.Note = cut(e.Owner, tenure.MaxName), cut(e.Actor, tenure.MaxName), cut(e.Note, tenure.MaxText)
	s.o.Observe(e)
}

// cut shortens a text to at most so many bytes, at the end of a character.
func cut[T ~string](text T, most int) T {
	if len(text) <= most {
		return text
	}
	return T(strings.ToValidUTF8(string(text[:most]), ""))
}
