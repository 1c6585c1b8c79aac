package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// plainStore hides the optional methods of a store.
type plainStore struct{ store.Store }

// unreadable is a store that does not answer.
type unreadable struct{ store.Store }

func (unreadable) Get(context.Context, string) (tenure.Record, error) {
	return tenure.Record{}, store.Unknown(errors.New("no answer"))
}

// TestTheDoctorExaminesAStoreThatCannotExamineItself: it says so, compares the
// clocks, and finds out whether the store answers.
func TestTheDoctorExaminesAStoreThatCannotExamineItself(t *testing.T) {
	for _, c := range []struct {
		scheme string
		st     store.Store
		exit   int
	}{
		{"unable", mem.New(nil), 0}, // it has the method, but its register has not
		{"plain", plainStore{mem.New(nil)}, 0},
		{"unreadable", unreadable{mem.New(nil)}, cli.ExitUnknown},
	} {
		store.Register(c.scheme, func(context.Context, *url.URL) (store.Store, error) { return c.st, nil })
		var stdout, stderr strings.Builder
		code := Main([]string{"doctor", "--json", "--store", c.scheme + "://here"}, strings.NewReader(""), &stdout, &stderr)
		if code != c.exit {
			t.Errorf("%s: exit code %d, want %d: %s", c.scheme, code, c.exit, stderr.String())
		}
		if code != 0 {
			continue
		}
		for _, want := range []string{`"check":"access"`, `"check":"clock"`, "cannot examine itself"} {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s: no %s in %s", c.scheme, want, stdout.String())
			}
		}
	}
}
