package store_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/store"
)

// TestAFaultIsCertain: a fault stays one if words are added to it. Inside an
// unknown outcome, or beside another error, it proves nothing. Every fault
// matches ErrUnknown.
func TestAFaultIsCertain(t *testing.T) {
	cause := errors.New("the password is wrong")
	fault := store.Fault(cause)
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"a fault", fault, true},
		{"with more words", fmt.Errorf("acquire: %w", fault), true},
		{"passed through Unknown", store.Unknown(fault), true},
		{"made twice", store.Fault(fault), true},
		{"in an unknown outcome", &store.UnknownError{Err: fault}, false},
		{"beside another error", errors.Join(fault, cause), false},
		{"another error", cause, false},
		{"no error", store.Fault(nil), false},
		{"a closed port", store.Unreachable(fmt.Errorf("dial: %w", syscall.ECONNREFUSED)), true},
		{"an unknown host", store.Unreachable(&net.DNSError{IsNotFound: true}), true},
		{"a name server that is silent", store.Unreachable(&net.DNSError{IsTimeout: true}), false},
		{"a broken connection", store.Unreachable(syscall.ECONNRESET), false},
	} {
		if got := store.IsFault(c.err); got != c.want {
			t.Errorf("%s: IsFault is %t", c.name, got)
		}
	}
	if !errors.Is(fault, store.ErrUnknown) || !errors.Is(fault, cause) {
		t.Errorf("%v matches neither ErrUnknown nor its cause", fault)
	}
}
