package httpfence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// ProblemType is the media type of a refusal's body (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is the body of a refusal. Besides the members of RFC 9457 it has
// those of an error of the croft command under --json.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says why the request was refused and what to do.
	Detail string `json:"detail"`
	// Code is one of held, not_owned, stale, collision, wrong_key, repeated,
	// unknown and invalid.
	Code string `json:"code"`
	// Resource is the resource, if it is known.
	Resource string `json:"resource,omitempty"`
	// Sent says whether the service may have seen any of the request. If it is
	// false, the same request may be sent again.
	Sent bool `json:"sent"`
	// Key and Token belong to the refused stamp. Seq is its number, if it has
	// one.
	Key   string      `json:"key,omitempty"`
	Token fence.Token `json:"token,omitempty"`
	Seq   uint64      `json:"seq,omitempty"`
	// Newest is the token that is newer than a stale stamp. Mark is the mark
	// with which any other refused stamp does not agree. It has no grant,
	// because with the grant anybody could write as its owner.
	Newest fence.Token `json:"newest,omitempty"`
	Mark   *fence.Mark `json:"mark,omitempty"`
	// Owner is the owner of the key's newest grant, if that is another. It is
	// told only to a stamp that the key had shortly before.
	Owner string `json:"owner,omitempty"`
}

// Refuse answers a request with the problem that err describes. It is for
// handlers that admit stamps in their own transaction.
//
// The status is 409 for a refusal of the fence, 428 if there is no stamp, and
// 400 for other invalid input. It is 503 if the outcome is unknown. The answer
// explains a wrong stamp or request. It does not repeat other errors, which may
// name addresses, owners and files: log those.
func Refuse(w http.ResponseWriter, err error) {
	r := admission.RefusalOf(err)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(problemOf(r)) // cannot fail
	h := w.Header()
	h.Set("Content-Type", ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(body.Len())) // lets a client read the answer while it still sends
	if r.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.Retry.Seconds()))))
	}
	w.WriteHeader(r.Status)
	_, _ = body.WriteTo(w) // the client may have gone
}

func problemOf(r *admission.Refusal) Problem {
	f := r.Facts()
	return Problem{
		Title: http.StatusText(r.Status), Status: r.Status, Detail: r.Detail(), Code: r.Code,
		Resource: r.Resource, Sent: r.Sent,
		Key: f.Key, Token: f.Token, Seq: f.Seq, Newest: f.Newest, Mark: f.Mark, Owner: f.Owner,
	}
}

// ProblemError is a refusal as a client finds it in an answer. It matches the
// error that its code stands for: fence.ErrStale, fence.ErrCollision,
// fence.ErrWrongKey, fence.ErrRepeated, croft.ErrHeld, croft.ErrNotOwned,
// croft.ErrUnknown or fence.ErrInvalid.
type ProblemError struct {
	Problem
	// RetryAfter is how long the service asks to wait. It is 0 if the service
	// does not say.
	RetryAfter time.Duration
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("refused (%d %s): %s", e.Status, e.Code, e.Detail)
}

// Is reports whether the code stands for the target.
func (e *ProblemError) Is(target error) bool { return target != nil && target == matches[e.Code] }

var matches = map[string]error{
	"held": tenure.ErrHeld, "not_owned": tenure.ErrNotOwned, "stale": fence.ErrStale, "collision": fence.ErrCollision,
	"wrong_key": fence.ErrWrongKey, "repeated": fence.ErrRepeated, "unknown": store.ErrUnknown,
	"invalid": fence.ErrInvalid,
}

// mostProblem bounds how much of an answer RefusalIn reads.
const mostProblem = 64 << 10

// RefusalIn returns the refusal in an answer as a [*ProblemError], or nil if
// the answer is none. If the answer breaks off, it returns the error of reading
// it. The answer's body can be read as before, and the caller must still close
// it.
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
		return nil // a problem of another program
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		found.RetryAfter = time.Duration(seconds) * time.Second
	}
	return found
}
