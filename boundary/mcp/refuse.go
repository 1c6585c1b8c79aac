package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// This file has the messages of the proxy's own.

// These are the codes of JSON-RPC.
const (
	invalidRequest = -32600
	methodNotFound = -32601
	internalError  = -32603
	// These are of revision 2026-07-28.
	headerMismatch  = -32020
	unknownRevision = -32022
)

// fault is an error of JSON-RPC that the proxy gives as its answer.
type fault struct {
	status int // of an HTTP answer; 0 means the usual one for the code
	code   int
	say    string
	data   object // nil if there is none
}

// refusal returns the fault as the refusal of a request.
func (f *fault) refusal() error {
	return &admission.Refusal{Status: http.StatusBadRequest, Code: "invalid", Say: f.say}
}

// rpcError returns an error as the answer to a request. If the message could
// not be read, the id is null.
func rpcError(to message, code int, say string) object {
	return (&fault{code: code, say: say}).answer(to)
}

// answer returns the fault as the answer to a request. If the message could not
// be read, the id is null.
func (f *fault) answer(to message) object {
	id, _ := to.body.get("id")
	if to.id == "" {
		id = nil
	}
	about := object{{"code", json.Number(strconv.Itoa(f.code))}, {"message", "croft: " + f.say}}
	if f.data != nil {
		about = append(about, member{"data", f.data})
	}
	return object{{"jsonrpc", "2.0"}, {"id", id}, {"error", about}}
}

// meanings tells a refused agent what a code means for it. It says who may go
// on, and not how to become that one.
var meanings = map[string]string{
	"not_owned": "This agent does not hold the task any more. Stop this work.",
	"stale":     "A newer owner of the task has written here. Stop this work.",
	"collision": "The task was granted twice. Stop this work, and tell the people who run it.",
	"wrong_key": "What this tool writes to belongs to another task. Leave it alone.",
	"held":      "Another write is under way. Try again later.",
	"unknown":   "It could not be decided whether this agent may write. Try again later.",
}

// refused returns a refusal as the result of a call. The agent reads its text.
// Its _meta has the same for programs.
func refused(to message, r *admission.Refusal) object {
	facts := r.Facts()
	say := meanings[r.Code]
	switch {
	case r.Say != "":
		say = sentence(r.Say)
	case r.Code == "invalid":
		say = sentence(r.Detail())
	}
	if facts.Owner != "" {
		say += fmt.Sprintf(" The task %s now belongs to %s.", facts.Key, facts.Owner)
	}
	if !r.Sent && !strings.Contains(say, "nothing was sent") {
		say += " Nothing was sent to the server."
	}
	about := object{{"code", r.Code}, {"sent", r.Sent}}
	for _, m := range []member{{"resource", r.Resource}, {"key", facts.Key}, {"owner", facts.Owner}} {
		if m.value != "" {
			about = append(about, m)
		}
	}
	for _, m := range []struct {
		name  string
		token fence.Token
	}{{"token", facts.Token}, {"newest", facts.Newest}} {
		if m.token != 0 {
			about = append(about, member{m.name, json.Number(strconv.FormatInt(int64(m.token), 10))})
		}
	}
	result := object{
		{"content", list{object{{"type", "text"}, {"text", "Refused by croft (" + r.Code + "). " + say}}}},
		{"isError", true},
		{"_meta", object{{"croft/refusal", about}}},
	}
	if to.era() == sessionless {
		result = append(result, member{"resultType", "complete"})
	}
	id, _ := to.body.get("id")
	return object{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}
}

// sentence begins a text with a capital and ends it with a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
