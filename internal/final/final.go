// Package final marks errors after which trying again would not help. Both
// packages croft and work make and recognize them, so that a program may use
// either one's Final.
package final

import "errors"

// Error is an error that ends a loop or an item for good.
type Error struct {
	// Err is the reason, or nil if there is none.
	Err error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "no reason was given"
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the final error that err is or wraps.
func Of(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
