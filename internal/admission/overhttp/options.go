package overhttp

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/croft-dev/croft/fence"
)

// CheckUpstream refuses an upstream that is not the plain URL of a service.
func CheckUpstream(upstream *url.URL) error {
	if upstream == nil || upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.Host == "" {
		return fmt.Errorf("%w upstream: it must be the http or https URL of a service, "+
			"for example http://localhost:8080", fence.ErrInvalid)
	}
	if upstream.RawQuery != "" || upstream.Fragment != "" || upstream.User != nil {
		return fmt.Errorf("%w upstream %q: it has a scheme, a host and a path, and nothing else",
			fence.ErrInvalid, (&url.URL{Scheme: upstream.Scheme, Host: upstream.Host, Path: upstream.Path}).String())
	}
	return nil
}

// FillTimes fills in the usual bounds of a proxy, and checks them.
func FillTimes(settle time.Duration, answer, connect, receive *time.Duration) error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"AnswerWithin", answer, min(30*time.Second, settle)},
		{"ConnectWithin", connect, 5 * time.Second},
		{"ReceiveWithin", receive, time.Minute},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < 0 {
			return fmt.Errorf("%w %s %s: it must be more than 0", fence.ErrInvalid, d.name, *d.value)
		}
	}
	if settle < *answer {
		return fmt.Errorf("%w settle time %s: "+
			"it must be at least as long as the service may take to answer (%s), "+
			"because a proxy that dies leaves a write behind for as long as that",
			fence.ErrInvalid, settle, *answer)
	}
	return nil
}

// Reads returns the transport for reads: the given one, or else a copy of
// http.DefaultTransport.
func Reads(given http.RoundTripper) http.RoundTripper {
	if given != nil {
		return given
	}
	if usual, ok := http.DefaultTransport.(*http.Transport); ok { // the program may have replaced it
		return usual.Clone()
	}
	return http.DefaultTransport
}
