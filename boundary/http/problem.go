package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ProblemType is the media type of a refusal's body (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is the body of a refusal. Beside the members of RFC 9457 it has those of an error under croft's --json.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what is wrong and what to do.
	Detail string `json:"detail"`
	// Code is one of held not_owned stale collision wrong_key repeated unknown invalid.
	Code string `json:"code"`
	// Resource is which one, where that is known.
	Resource string `json:"resource,omitempty"`
	// Sent says whether the service may have seen any of the request. False: it has not; the same request may be sent again.
	Sent bool `json:"sent"`
	// Key and Token are those of the stamp that was refused, Seq its number if it has one.
	Key   string      `json:"key,omitempty"`
	Token fence.Token `json:"token,omitempty"`
	Seq   uint64      `json:"seq,omitempty"`
	// Newest is the token that a stale stamp is older than; Mark is what any other refused stamp does not agree with. It has no grant: with it anybody could write as its owner.
	Newest fence.Token `json:"newest,omitempty"`
	Mark   *fence.Mark `json:"mark,omitempty"`
	// Owner is the owner of the key's newest grant, if another has it. Only a
	// stamp that the key had shortly before is told.
	Owner string `json:"owner,omitempty"`
}

// refusal is an error that knows how it is told over HTTP. A client is told
// say. The error behind it is for the operator: it may name addresses, owners
// and files that are none of the client's business.
type refusal struct {
	status   int
	code     string
	resource string
	stamp    fence.Stamp   // of the write, if it has one
	retry    time.Duration // for Retry-After; 0: none
	sent     bool
	say      string // "": see detail
	err      error  // nil: say is all there is to know
}

func (r *refusal) Error() string {
	switch {
	case r.err == nil:
		return r.say
	case r.say == "":
		return r.err.Error()
	}
	return r.say + ": " + r.err.Error()
}

func (r *refusal) Unwrap() error { return r.err }

// detail is what the client is told. Of an error that nobody has put into
// words for clients, it is told what the law says of its own stamp, what is
// wrong with its own request, and otherwise only what the code means.
func (r *refusal) detail() string {
	if r.say != "" {
		return r.say
	}
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var notOwned *tenure.NotOwnedError
	switch {
	case errors.As(r.err, &notOwned) && notOwned.Record.Issued(r.stamp):
		return notOwned.Error()
	case errors.As(r.err, &stale):
		anonymous := *stale
		anonymous.PresentedOwner, anonymous.NewestOwner = "", ""
		return anonymous.Error()
	case errors.As(r.err, &refused):
		return refused.Error()
	case r.code == "invalid":
		return r.err.Error()
	}
	return meanings[r.code]
}

// meanings are the details of refusals whose errors are not for clients.
var meanings = map[string]string{
	"held":      "another owner has the lease that this write needs; try again later",
	"not_owned": "the lease that this write needs is no longer its owner's; stop this work",
	"unknown":   "the write could not be decided; look whether it took effect before you send it again",
}

// verdicts is the one table from errors to HTTP. The first match counts; the codes are those of the command line.
var verdicts = []struct {
	match  error
	code   string
	status int
}{
	{croft.ErrLost, "not_owned", http.StatusConflict},
	{tenure.ErrHeld, "held", http.StatusConflict},
	{tenure.ErrNotOwned, "not_owned", http.StatusConflict},
	{fence.ErrStale, "stale", http.StatusConflict},
	{fence.ErrCollision, "collision", http.StatusConflict},
	{fence.ErrWrongKey, "wrong_key", http.StatusConflict},
	{fence.ErrRepeated, "repeated", http.StatusConflict},
	{guard.ErrBusy, "unknown", http.StatusServiceUnavailable},
	{store.ErrUnknown, "unknown", http.StatusServiceUnavailable},
	{ErrNoStamp, "invalid", http.StatusPreconditionRequired},
	{fence.ErrInvalid, "invalid", http.StatusBadRequest},
}

// refusalOf makes a refusal of any error.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	for _, v := range verdicts {
		if errors.Is(err, v.match) {
			return &refusal{status: v.status, code: v.code, err: err}
		}
	}
	return &refusal{status: http.StatusServiceUnavailable, code: "unknown", err: err}
}

// Refuse answers a request with the problem that err is. It is for handlers that
// admit stamps in their own transaction. The status is 409 for a refusal of the
// fence, 428 if there is no stamp, 400 for other bad input, and 503 if the
// outcome is unknown. The answer explains a wrong stamp or request. It does not
// repeat other errors, which may name addresses, owners and files: log those.
func Refuse(w http.ResponseWriter, err error) {
	r := refusalOf(err)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(problemOf(r)) // it can be encoded
	h := w.Header()
	h.Set("Content-Type", ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(body.Len())) // a client need not wait for the end of the request
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retry.Seconds()))))
	}
	w.WriteHeader(r.status)
	_, _ = body.WriteTo(w) // the client may have gone
}

func problemOf(r *refusal) Problem {
	p := Problem{Title: http.StatusText(r.status), Status: r.status, Detail: r.detail(), Code: r.code, Resource: r.resource, Sent: r.sent}
	var stale *fence.StaleError
	var refused *fence.RefusedError
	var notOwned *tenure.NotOwnedError
	presented := func(s fence.Stamp) { p.Key, p.Token, p.Seq = s.Key, s.Token, s.Seq }
	switch {
	case r.code == "not_owned" && errors.As(r.err, &notOwned):
		presented(r.stamp)
		if rec := notOwned.Record; rec.Issued(r.stamp) && rec.Token > r.stamp.Token {
			p.Newest, p.Owner = rec.Token, rec.Owner
		}
	case errors.As(r.err, &stale):
		presented(stale.Presented)
		p.Newest = stale.Newest.Token
	case errors.As(r.err, &refused):
		presented(refused.Presented)
		mark := refused.Mark
		mark.Grant = ""
		p.Mark = &mark
	}
	return p
}

// ProblemError is a refusal as a client finds it in an answer. It matches what the refusal was: fence.ErrStale, fence.ErrCollision, fence.ErrWrongKey,
// fence.ErrRepeated, croft.ErrHeld, croft.ErrNotOwned, croft.ErrUnknown or fence.ErrInvalid.
type ProblemError struct {
	Problem
	// RetryAfter is how long the service asks to wait, 0 if it does not say.
	RetryAfter time.Duration
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("refused (%d %s): %s", e.Status, e.Code, e.Detail)
}

// Is makes the error match what the code stands for.
func (e *ProblemError) Is(target error) bool { return target != nil && target == matches[e.Code] }

var matches = map[string]error{
	"held": tenure.ErrHeld, "not_owned": tenure.ErrNotOwned, "stale": fence.ErrStale, "collision": fence.ErrCollision,
	"wrong_key": fence.ErrWrongKey, "repeated": fence.ErrRepeated, "unknown": store.ErrUnknown, "invalid": fence.ErrInvalid,
}

// mostProblem bounds how much of an answer is read in search of a problem.
const mostProblem = 64 << 10

// RefusalIn is the refusal an answer holds, a [*ProblemError], or nil if it is none. The answer's body can be read as before, and is still the caller's to close.
func RefusalIn(resp *http.Response) error {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != ProblemType || resp.StatusCode < 400 {
		return nil
	}
	read, err := io.ReadAll(io.LimitReader(resp.Body, mostProblem))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), rest}
	if err != nil {
		return fmt.Errorf("reading the refusal: %w", err)
	}
	found := &ProblemError{}
	if json.Unmarshal(read, &found.Problem) != nil || matches[found.Code] == nil {
		return nil // somebody else's
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		found.RetryAfter = time.Duration(seconds) * time.Second
	}
	return found
}
