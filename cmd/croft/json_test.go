package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// fields checks the names of every JSON object on standard output, all of them
// and in order, or those of the object in a field: fields NAME..., fields
// .error NAME...
func fields(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("fields cannot be negated")
	}
	within := ""
	if len(args) > 0 && strings.HasPrefix(args[0], ".") {
		within, args = args[0][1:], args[1:]
	}
	text := strings.TrimSuffix(ts.ReadFile("stdout"), "\n")
	for _, line := range strings.Split(text, "\n") {
		object := []byte(line)
		if within != "" {
			var outer map[string]json.RawMessage
			if err := json.Unmarshal(object, &outer); err != nil {
				ts.Fatalf("not a JSON object: %q: %v", line, err)
			}
			object = outer[within]
		}
		names, err := namesOf(string(object))
		if err != nil {
			ts.Fatalf("not a JSON object: %q: %v", line, err)
		}
		if !slices.Equal(names, args) {
			ts.Fatalf("fields are %s\nwant       %s", strings.Join(names, " "), strings.Join(args, " "))
		}
	}
}

// namesOf lists the names of a JSON object in order.
func namesOf(object string) ([]string, error) {
	dec := json.NewDecoder(strings.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var names []string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
	}
	return names, nil
}
