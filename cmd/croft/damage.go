package main

import (
	"errors"
	"strings"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
)

// damage keeps the errors about damaged records. A command that looks at all
// keys goes on without them: otherwise everybody who can plant one record could
// hide all others from an operator.
type damage struct {
	errs []error
	said map[string]bool // the texts of errs: two listings may find the same record
}

// rest returns the error of a listing, unless only damaged records are missing
// in it.
func (d *damage) rest(err error) error {
	if err == nil {
		return nil
	}
	if !store.OnlyDamaged(err) {
		return store.Unknown(err)
	}
	var unknown *store.UnknownError
	if errors.As(err, &unknown) {
		err = unknown.Err
	}
	if text := err.Error(); !d.said[text] {
		if d.said == nil {
			d.said = map[string]bool{}
		}
		d.said[text] = true
		d.errs = append(d.errs, err)
	}
	return nil
}

// err returns the error of a command that had to leave out records.
func (d *damage) err() error {
	if len(d.errs) == 0 {
		return nil
	}
	return store.Unknown(errors.Join(d.errs...))
}

// text names the missing records and the reasons, on one line. It is empty if
// none is missing.
func (d *damage) text(a *app) string {
	if len(d.errs) == 0 {
		return ""
	}
	text := cli.Lines(a.Redact(errors.Join(d.errs...).Error()))
	return "left out: " + strings.ReplaceAll(text, "\n", "; ")
}
