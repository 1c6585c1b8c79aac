// Package wire is the JSON that a Croft server and its clients exchange: the
// law's requests, the store's answers, and refusals. The server and
// backend/remote share it, so both ends mean the same by every name.
//
// The names are those of the command line under --json. Tokens are numbers.
// Times are RFC 3339 with fractions, durations as Go prints them, checkpoints
// in base64.
//
// # Reading
//
// A server reads requests strictly. It refuses a member that it does not know,
// because the client may count on its effect. A client reads answers and skips
// the members that it does not know, because a newer server may say more. Both
// refuse a member that appears twice, null, text that is not UTF-8, and
// anything behind the value. The readers follow the form of the value, so a
// document cannot nest deeper than the form does. An error matches
// fence.ErrInvalid and names the member.
//
// # Refusals
//
// A [Problem] is a refusal, as the body of an answer with the media type
// application/problem+json and as the error of one answer in a batch.
// [Problem.Err] makes the error again that [ProblemOf] was given: a
// *tenure.HeldError, a *tenure.NotOwnedError, a *store.FaultError, or an error
// that matches fence.ErrInvalid or store.ErrUnknown.
//
// The package has no goroutines and does no I/O.
package wire

// The limits of one request to a server.
const (
	// MaxBatch is how many requests of the law one call may carry. A batch of
	// a client's engine fits in.
	MaxBatch = 1024
	// MaxBody is the size of the longest body that a server reads.
	MaxBody = 1 << 20
	// MaxAnswer is the size of the longest answer that a client reads. The
	// answers to the largest batch fit in.
	MaxAnswer = 64 << 20
	// MaxLine is the longest line of a listing or a stream.
	MaxLine = 1 << 20
)

// The media types of bodies.
const (
	JSON    = "application/json"
	Lines   = "application/jsonl"
	Events  = "text/event-stream"
	Refused = "application/problem+json"
	PEM     = "application/x-pem-file"
)
