package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ErrClosed is the reason in every error of a store that has been closed.
var ErrClosed = errors.New("the store is closed; open it again")

// Store is a lease store behind a Croft server. Its methods are safe for
// concurrent use.
type Store struct {
	base      string // the URL of the server, without a slash at its end
	token     token
	client    *http.Client
	transport *http.Transport

	life context.Context // ends when the store is closed
	end  context.CancelFunc
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Sweeper   = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// Apply sends requests to the server, as a rule in one call.
func (s *Store) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := make([]store.Answer, len(requests))
	var good []tenure.Request
	var index []int // of the good requests
	for i, q := range requests {
		if err := q.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		good, index = append(good, q), append(index, i)
	}
	bodies, sizes := wire.Batches(good)
	for i, body := range bodies {
		n := sizes[i]
		for k, a := range s.apply(ctx, body, good[:n]) {
			answers[index[k]] = a
		}
		good, index = good[n:], index[n:]
	}
	return answers
}

// apply makes one call.
func (s *Store) apply(ctx context.Context, body []byte, requests []tenure.Request) []store.Answer {
	text, err := s.ask(ctx, http.MethodPost, "/v1/apply", body, wire.MaxAnswer)
	if err == nil {
		var answers []store.Answer
		if answers, err = wire.ReadAnswers(text, requests); err == nil {
			err = checkGrants(answers, requests)
		}
		if err == nil {
			return answers
		}
		err = unread(err)
	}
	answers := make([]store.Answer, len(requests))
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// checkGrants refuses a success that belongs to another client's request, as
// after a proxy has mixed up answers. A release may succeed when others have
// been granted the key since.
func checkGrants(answers []store.Answer, requests []tenure.Request) error {
	for i, a := range answers {
		if q := requests[i]; a.Err == nil && q.Verb != tenure.Release &&
			(a.Record.Grant != q.Secret.Grant() || a.Record.Token <= 0) {
			return fmt.Errorf("number %d of %d is about another grant", i+1, len(answers))
		}
	}
	return nil
}

// unread is the error of an answer that is not as a server writes it. The
// request may have taken effect.
func unread(err error) error {
	return store.Unknown(errors.New("the answer cannot be read: " + err.Error()))
}

// Get returns the record of a key with its history.
func (s *Store) Get(ctx context.Context, key string) (tenure.Record, error) {
	if err := fence.CheckKey(key); err != nil {
		return tenure.Record{}, err
	}
	text, err := s.ask(ctx, http.MethodGet, "/v1/leases/"+url.PathEscape(key), nil, wire.MaxLine)
	if isNotFound(err) {
		return tenure.Record{}, nil
	}
	if err != nil {
		return tenure.Record{}, err
	}
	rec, err := wire.ReadRecord(text)
	if err == nil && rec.Key != key {
		err = errors.New("it is about another key")
	}
	if err != nil {
		return tenure.Record{}, unread(err)
	}
	return rec, nil
}

// List yields the records whose key begins with prefix, as far as the server
// shows them.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		path := "/v1/leases"
		if prefix != "" {
			path += "?" + url.Values{"prefix": {prefix}}.Encode()
		}
		resp, err := s.open(ctx, path)
		if err != nil {
			yield(tenure.Record{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, wire.MaxLine)
		for lines.Scan() {
			rec, err := wire.ReadLine(lines.Bytes())
			if err == nil && ctx.Err() != nil {
				err = store.Unknown(wait.Ended(ctx))
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(tenure.Record{}, s.failure(ctx, err))
		}
	}
}

// Now returns the time of the clock of the store behind the server.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	text, err := s.ask(ctx, http.MethodGet, "/v1/now", nil, wire.MaxLine)
	if err != nil {
		return time.Time{}, err
	}
	now, err := wire.ReadMoment(text)
	if err == nil && now.IsZero() {
		err = errors.New("it names no time")
	}
	if err != nil {
		return time.Time{}, unread(err)
	}
	return now, nil
}

// Sweep makes the store behind the server forget old records now. If somebody
// else sweeps it just then, the outcome is unknown.
func (s *Store) Sweep(ctx context.Context) (dropped int, err error) {
	text, err := s.ask(ctx, http.MethodPost, "/v1/sweep", []byte("{}"), wire.MaxLine)
	if err != nil {
		return 0, err
	}
	if dropped, err = wire.ReadDropped(text); err != nil {
		return 0, unread(err)
	}
	return dropped, nil
}

// Examine tells how the server is reached, and how fit the store behind it is.
// Servers tell the second to operators of all keys alone.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	way := store.Finding{Check: "server", Level: store.OK, Seen: "reached over TLS"}
	switch u, err := url.Parse(s.base); {
	case err != nil || u.Scheme == "https":
	case isLoopback(u.Hostname()):
		way.Seen = "on this machine, without TLS"
	default:
		way.Level, way.Seen = store.Bad, "reached over a network without TLS"
		way.Advice = "use https: anybody between here and the server can read the secrets of leases"
	}
	text, err := s.ask(ctx, http.MethodGet, "/v1/examine", nil, wire.MaxLine)
	var refused *problemError
	if errors.As(err, &refused) && (refused.p.Code == wire.NotAllowed || refused.p.Code == wire.Unsupported) {
		return []store.Finding{way, {
			Check: "tier", Level: store.Warn, Seen: "the server does not say how fit its store is: " + err.Error(),
			Advice: "run croft doctor on the machine of the server",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	findings, err := wire.ReadFindings(text)
	if err != nil {
		return nil, unread(err)
	}
	return append([]store.Finding{way}, findings...), nil
}

// Close ends all watches and calls. It releases no lease.
func (s *Store) Close() error {
	s.end()
	s.transport.CloseIdleConnections()
	return nil
}
