// Package httpfence brings the fence to HTTP: whose requests still count.
//
//	import httpfence "github.com/croft-dev/croft/boundary/http"
//
// A stamp travels in the header [Header]. A client adds it with a [Transport]. A service that can check does so in one of two ways: [Require] hands the
// stamp to the handler, which admits it in its own transaction (the better way, where there is one); [Gate.Middleware] keeps marks for it and lets one write in
// at a time. In front of a service that cannot check stands a [Proxy].
//
// # What makes check and write one step
//
// A service behind a Proxy knows nothing of stamps, so the order in which writes reach it must be the order in which they were admitted. A [Gate] sees to that
// for every resource by itself: it lets one write in at a time, under a lease that makes it the only gate of that resource; it raises the mark durably before
// the write goes on; and it lets the next one in only when the service has answered, whether or not the client still listens. A write whose outcome is not known may
// still be on its way: then the resource is closed until it has settled.
//
// The settle time is a promise of the caller's, the only one: whatever was sent to the service takes effect within it, or never. See docs/boundary-http.md
// for what follows from that.
package httpfence
