package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// message is one JSON-RPC message. Exactly one of three forms: a request has a
// method and an id, a notification has a method, and a response has an id.
type message struct {
	// id is the id as it was written, or "".
	id     string
	method string
	params object // nil if there are none
	// body is the whole message.
	body object
}

func (m message) isRequest() bool { return m.method != "" && m.id != "" }

// head returns the message without its params.
func (m message) head() message {
	id, _ := m.body.get("id")
	return message{id: m.id, method: m.method, body: object{{"id", id}}}
}

// result returns the result of a response, or nil if it is an error.
func (m message) result() object { return m.body.object("result") }

// withParams returns the message with other params.
func (m message) withParams(params object) message {
	m.params, m.body = params, m.body.with("params", params)
	return m
}

// withResult returns the response with another result.
func (m message) withResult(result object) message {
	m.body = m.body.with("result", result)
	return m
}

// envelope lists the members of a message. weighed lists the members of params
// on which the proxy decides.
var (
	envelope = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	weighed  = []string{
		"name", "arguments", "_meta", "task", "taskId", "requestId", "capabilities",
		"inputResponses", "requestState", "protocolVersion",
	}
)

// integer matches an integer in its one plain form.
var integer = regexp.MustCompile(`^(?:0|-?[1-9][0-9]*)$`)

// decode reads one message, strictly. Its error tells the sender the mistake.
func decode(text []byte) (message, error) {
	value, flaw := parse(text)
	body, ok := value.(object)
	if flaw != nil && !ok {
		return message{}, flaw
	}
	if !ok {
		return message{}, errors.New("it is not one object; batches are not taken")
	}
	m := message{body: body}
	if err := checkNames(body, envelope, true); err != nil {
		return m, err
	}
	if body.text("jsonrpc") != "2.0" {
		return m, errors.New(`its member "jsonrpc" is not "2.0"`)
	}
	if id, has := body.get("id"); has {
		var err error
		if m.id, err = idText(id); err != nil {
			return m, err
		}
	}
	return m, cmp.Or(m.readForm(), flaw)
}

// idText returns the text of an id. Two ids are the same if their texts are.
func idText(id any) (string, error) {
	switch id := id.(type) {
	case string:
		if !strings.ContainsRune(id, utf8.RuneError) { // it stands for what cannot be read
			return string(encode(id)), nil
		}
	case json.Number:
		if integer.MatchString(string(id)) {
			return string(id), nil
		}
	}
	return "", errors.New("its id is neither a string nor an integer in plain form")
}

// readForm reads the method and the params, and checks that the message has one
// of the three forms.
func (m *message) readForm() error {
	_, isResult := m.body.get("result")
	_, isError := m.body.get("error")
	method, isCall := m.body.get("method")
	if !isCall {
		if m.id == "" || isResult == isError {
			return errors.New("it has no method, and is no response with an id and one of result and error")
		}
		if _, has := m.body.get("params"); has {
			return errors.New("it is a response with params")
		}
		return nil
	}
	if m.method, _ = method.(string); m.method == "" {
		return errors.New("its method is not a name")
	}
	if isResult || isError {
		return errors.New("it is both a call and a response")
	}
	params, has := m.body.get("params")
	if !has {
		return nil
	}
	if m.params, has = params.(object); !has {
		return errors.New("its params are no object")
	}
	return checkNames(m.params, weighed, false)
}

// checkNames refuses names that a careless parser takes for one another: two
// members that differ only in case, and a known name in another case. If only
// is set, all names must be known.
func checkNames(o object, known []string, only bool) error {
	proper := make(map[string]string, len(known))
	for _, name := range known {
		proper[folded(name)] = name
	}
	seen := make(map[string]string, len(o))
	for _, m := range o {
		fold := folded(m.name)
		if other, twice := seen[fold]; twice {
			return fmt.Errorf("the members %q and %q differ only in case", other, m.name)
		}
		seen[fold] = m.name
		name, is := proper[fold]
		switch {
		case is && name != m.name:
			return fmt.Errorf("the member %q must be written %q", m.name, name)
		case !is && only:
			return fmt.Errorf("a message has no member %q", m.name)
		}
	}
	return nil
}

// folded returns the form in which names are compared without regard to case.
// Some parsers also take the long s for an s, and the Kelvin sign for a k.
func folded(name string) string {
	return strings.ToLower(strings.ToUpper(name))
}
