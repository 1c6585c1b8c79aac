package holdcmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The acts that a parent asks for.
const (
	doAcquire    = "acquire"
	doVerify     = "verify"
	doRenew      = "renew"
	doReport     = "report"
	doCheckpoint = "checkpoint"
	doRelease    = "release"
	doFail       = "fail"
)

// members lists the members of each request besides id, do and lease.
var members = map[string][]string{
	doAcquire:    append([]string{"key"}, slices.Sorted(maps.Keys(flagOf))...),
	doVerify:     nil,
	doRenew:      {"ttl"},
	doReport:     {"marker"},
	doCheckpoint: {"checkpoint"},
	doRelease:    nil,
	doFail:       nil,
}

// request is a message of the parent.
type request struct {
	id    int64
	do    string
	lease string // the parent's name for it

	key        string // of acquire
	terms      *terms // of acquire
	ttl        time.Duration
	marker     string
	checkpoint []byte
}

// errProtocol is matched by errors after which the input cannot be trusted any
// more: it may go on in the middle of a message.
var errProtocol = fmt.Errorf("%w input", fence.ErrInvalid)

// maxLine is how long a message may be, with its end of line.
const maxLine = 64 << 10

// maxName is how long a parent's name for a lease may be, as long as a key.
const maxName = fence.MaxKey

// line is a line of input, or the reason why there is no further one: io.EOF
// after a whole message.
type line struct {
	text []byte
	err  error
}

// readLines reads messages until the input ends or is torn. It closes the
// channel after the reason. It stops early when done is closed.
func readLines(r io.Reader, lines chan<- line, done <-chan struct{}) {
	defer close(lines)
	in := bufio.NewReaderSize(r, maxLine)
	for {
		var l line
		text, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			l.text = bytes.Clone(text)
		case errors.Is(err, bufio.ErrBufferFull):
			l.err = fmt.Errorf("%w: a line is longer than %d bytes", errProtocol, maxLine)
		case errors.Is(err, io.EOF) && len(text) > 0:
			l.err = fmt.Errorf("%w: it ended in the middle of a line", errProtocol)
		case errors.Is(err, io.EOF):
			l.err = io.EOF
		default:
			l.err = fmt.Errorf("%w: it could not be read: %w", errProtocol, err)
		}
		select {
		case lines <- l:
		case <-done:
			return
		}
		if l.err != nil {
			return
		}
	}
}

// parse reads a message. Its error matches errProtocol if the line is no JSON
// object. After any other error the request has its id and lease as far as they
// could be read, so that the reply can name them.
func parse(a *cli.App, text []byte) (*request, error) {
	req := &request{}
	var all map[string]json.RawMessage
	if !utf8.Valid(text) {
		return req, fmt.Errorf("%w: a line is not UTF-8", errProtocol)
	}
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		return req, fmt.Errorf("%w: a line is no JSON object", errProtocol)
	}
	null := ""
	for name, value := range all {
		if string(value) == "null" {
			null = name
			delete(all, name)
		}
	}
	for _, m := range []struct {
		name string
		into any
		what string
	}{{"id", &req.id, "a whole number, 1 or more"}, {"do", &req.do, "a text"}, {"lease", &req.lease, "a text"}} {
		value, there := all[m.name]
		delete(all, m.name)
		if there && json.Unmarshal(value, m.into) != nil {
			return req, cli.Invalid("%s: it must be %s", m.name, m.what)
		}
	}
	known, isKnown := members[req.do]
	switch {
	case null != "":
		return req, cli.Invalid("%.40q is null; leave a member out that has no value", null)
	case req.id < 1 || req.id > int64(fence.MaxToken):
		return req, cli.Invalid("id: every request has one, between 1 and %d", fence.MaxToken)
	case len(req.lease) > maxName:
		req.lease = "" // the reply does not repeat it
		return req, cli.Invalid("lease: the name is longer than %d bytes", maxName)
	case !isKnown:
		return req, cli.Invalid("do %.40q: it must be one of %s", req.do,
			strings.Join(slices.Sorted(maps.Keys(members)), ", "))
	}
	for name := range all {
		if !slices.Contains(known, name) {
			return req, cli.Invalid("member %.40q: %s has none of this name", name, req.do)
		}
	}
	err := req.read(a, all)
	return req, err
}

// read reads the members of an act.
func (r *request) read(a *cli.App, all map[string]json.RawMessage) error {
	text := func(name string, into any, what string) error {
		value, there := all[name]
		if !there || json.Unmarshal(value, into) != nil {
			return cli.Invalid("%s: %s needs it, as %s", name, r.do, what)
		}
		return nil
	}
	switch r.do {
	case doAcquire:
		if r.lease == "" {
			return cli.Invalid("lease: acquire needs a name for the lease, which you choose; use each name once")
		}
		if err := text("key", &r.key, "a text"); err != nil {
			return err
		}
		delete(all, "key")
		var err error
		r.terms, err = termsOf(a, r.key, all)
		return err
	case doRenew:
		value, there := all["ttl"]
		if !there {
			return nil
		}
		var err error
		r.ttl, err = seconds("ttl", value)
		if err == nil && r.ttl == 0 {
			err = cli.Invalid("ttl: leave it out to keep the present one")
		}
		return err
	case doReport:
		if err := text("marker", &r.marker, "a text"); err != nil {
			return err
		}
		// The requests that wait for the store are bounded in size, too.
		switch n := len(r.marker); {
		case n == 0:
			return cli.Invalid("marker: it is empty; say how far the work has got")
		case n > tenure.MaxText:
			return cli.Invalid("marker: %d bytes long, at most %d are allowed", n, tenure.MaxText)
		}
	case doCheckpoint:
		if err := text("checkpoint", &r.checkpoint, "a text in base64"); err != nil {
			return err
		}
		if n := len(r.checkpoint); n > tenure.MaxCheckpoint {
			return cli.Invalid("checkpoint: %d bytes long, at most %d are allowed", n, tenure.MaxCheckpoint)
		}
	}
	return nil
}
