package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/current"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// read returns the record of the key in the path.
func (s *Server) read(c *call) (tenure.Record, error) {
	key, err := c.key()
	if err != nil {
		return tenure.Record{}, err
	}
	if !s.may(c.id, Read, key) {
		return tenure.Record{}, refuse(unseen())
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	rec, err := s.st.Get(ctx, key)
	if err == nil && rec.IsZero() {
		err = refuse(unseen())
	}
	return rec, err
}

// get answers GET /v1/leases/{key}: the record with its history.
func (s *Server) get(c *call) error {
	rec, err := s.read(c)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Record(rec))
	return nil
}

// history answers GET /v1/leases/{key}/history: the transfers, newest first.
func (s *Server) history(c *call) error {
	rec, err := s.read(c)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.History(rec))
	return nil
}

// list answers GET /v1/leases?prefix=: a record per line, without its history.
// A last line with an error says that the listing is not whole. The connection
// breaks if it can no longer say so.
func (s *Server) list(c *call) error {
	prefix, err := c.prefix()
	if err != nil {
		return err
	}
	open := func(ctx context.Context) iter.Seq2[tenure.Record, error] {
		return func(yield func(tenure.Record, error) bool) {
			for rec, err := range s.st.List(ctx, prefix) {
				if !yield(rec, err) || err != nil {
					return
				}
			}
		}
	}
	return lines(s, c, 0, wire.LastLine, open, func(rec tenure.Record) []byte {
		if !s.may(c.id, Read, rec.Key) {
			return nil
		}
		rec.History = nil
		return wire.Record(rec)
	})
}

// lines sends a listing: a line for each value that show returns one for, and
// no more than most of them, unless that is 0. last makes the line of an error.
func lines[T any](
	s *Server, c *call, most int, last func(wire.Problem) []byte,
	open func(context.Context) iter.Seq2[T, error], show func(T) []byte,
) error {
	if !c.ProtoAtLeast(1, 1) {
		return refuse(wire.NewProblem(wire.Invalid, "a listing needs HTTP/1.1: before it, the client cannot see "+
			"that a connection broke; set the proxy in front of the server to HTTP/1.1"))
	}
	leave, ok := s.enterList(c.id)
	if !ok {
		return busy("listings")
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	c.w.Header().Set("Content-Type", wire.Lines)
	out := bufio.NewWriterSize(deadlined{c}, 32<<10)
	n := 0
	for v, err := range open(ctx) {
		var line []byte
		switch {
		case err != nil && c.w.status == 0 && n == 0:
			return err
		case err != nil:
			c.told.Err, line = err, last(wire.ProblemOf(err))
		default:
			line = show(v)
		}
		if line == nil {
			continue
		}
		n++
		if _, err := out.Write(append(line, '\n')); err != nil {
			panic(http.ErrAbortHandler) // the client must not take this for the end
		}
		if n == most {
			break
		}
	}
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	if c.w.status == 0 {
		c.w.WriteHeader(http.StatusOK)
	}
	return nil
}

// prefix returns the prefix of keys in the query, the only parameter.
func (c *call) prefix() (string, error) {
	if err := onlyQuery(c, "prefix"); err != nil {
		return "", err
	}
	prefix := c.URL.Query().Get("prefix")
	if len(prefix) > fence.MaxKey || !utf8.ValidString(prefix) || strings.IndexFunc(prefix, unicode.IsControl) >= 0 {
		return "", refuse(wire.NewProblem(wire.Invalid, "prefix: no key begins so: it is too long, not valid UTF-8, "+
			"or has a control character"))
	}
	return prefix, nil
}

// deadlined writes to a client that has only so much time for each part.
type deadlined struct{ c *call }

func (d deadlined) Write(b []byte) (int, error) {
	_ = d.c.out.SetWriteDeadline(time.Now().Add(sendWithin))
	return d.c.w.Write(b)
}

// onlyQuery refuses parameters that are not known, and those given twice.
func onlyQuery(c *call, known string) error {
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return refuse(wire.NewProblem(wire.Invalid, "what follows the question mark cannot be read; percent-encode it"))
	}
	for name, values := range query {
		if name != known || len(values) != 1 {
			return refuse(wire.NewProblem(wire.Invalid, "the parameter %.40q is not known or given twice; known is %s",
				name, known))
		}
	}
	return nil
}

// now answers GET /v1/now: the time of the store's clock.
func (s *Server) now(c *call) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	now, err := s.st.Now(ctx)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Moment(now))
	return nil
}

// sweep answers POST /v1/sweep: it makes the store forget old records now. It
// is about all keys, so only an identity that may operate all of them may do
// it.
func (s *Server) sweep(c *call) error {
	if !s.may(c.id, Operate, "") {
		return refuse(wire.NewProblem(wire.NotAllowed, "only an operator of all keys may sweep"))
	}
	if _, err := c.body(); err != nil {
		return err
	}
	w, ok := s.st.(store.Sweeper)
	if !ok {
		return errors.ErrUnsupported
	}
	if !s.sweeps.enter() {
		return busy("sweeps")
	}
	defer s.sweeps.leave()
	dropped, err := w.Sweep(c.Context())
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Dropped(dropped))
	return nil
}

// examine answers GET /v1/examine: how fit the store is. Findings may name
// hosts and files, so they are for operators of all keys.
func (s *Server) examine(c *call) error {
	if !s.may(c.id, Operate, "") {
		return refuse(wire.NewProblem(wire.NotAllowed, "only an operator of all keys may examine the store"))
	}
	e, ok := s.st.(store.Examiner)
	if !ok {
		return errors.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(c.Context(), examineWithin)
	defer cancel()
	findings, err := e.Examine(ctx)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.Findings(findings))
	return nil
}

// verify answers POST /v1/verify: whether the store has issued a stamp, and
// whether its owner is the current one.
func (s *Server) verify(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	stamp, err := wire.ReadStamp(body)
	if err != nil {
		return err
	}
	if !s.may(c.id, Read, stamp.Key) {
		return refuse(unseen())
	}
	if stamp.Signature != "" {
		if err := s.o.Keys.Verify(stamp); err != nil {
			return err
		}
	}
	verdict, err := s.judge(c, stamp)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, verdict.Bytes())
	return nil
}

// keys answers GET /v1/keys: the public keys for guards, in PEM form.
func (s *Server) keys(c *call) error {
	if s.o.Keys == nil {
		return refuse(wire.NewProblem(wire.NotFound, "this server signs no stamps"))
	}
	c.send(http.StatusOK, wire.PEM, bytes.TrimRight(s.o.Keys.PEM(), "\n"))
	return nil
}

func (s *Server) judge(c *call, stamp fence.Stamp) (wire.Verdict, error) {
	v := wire.Verdict{Key: stamp.Key, Token: stamp.Token}
	err := s.checkCurrent(c, stamp)
	var notOwned *tenure.NotOwnedError
	switch {
	case err == nil:
		v.Issued, v.Current, v.Newest = true, true, stamp.Token
	case errors.As(err, &notOwned):
		rec := notOwned.Record
		v.Issued, v.Why, v.Newest = rec.Issued(stamp), notOwned.Why, rec.Token
	default:
		return v, err
	}
	return v, nil
}

// checkCurrent returns nil if the owner of a stamp is the current one. The
// stamps of items have the form QUEUE/ID. A lease can have such a key, too.
func (s *Server) checkCurrent(c *call, stamp fence.Stamp) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.o.CallTimeout)
	defer cancel()
	if _, _, err := work.ItemOf(tenure.Deed{Key: stamp.Key}); err != nil || s.ledger == nil {
		return current.Ask(ctx, s.st, stamp)
	}
	leave, err := s.ledger.enter(c)
	if err != nil {
		return err
	}
	err = current.Ask(ctx, work.Owners{Ledger: s.ledger}, stamp)
	leave()
	var refused *tenure.NotOwnedError
	switch {
	case errors.As(err, &refused) && refused.Record.IsZero(): // there is no such item
		return current.Ask(ctx, s.st, stamp)
	case errors.Is(err, store.ErrUnknown) && current.Ask(ctx, s.st, stamp) == nil:
		return nil
	}
	return err
}
