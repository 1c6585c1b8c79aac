// Package registry opens stores and guards from URLs, by their scheme. Each
// kind has its own Registry. A mutex protects its openers.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/croft-dev/croft/fence"
)

// Opener opens the thing at a URL.
type Opener[T any] func(ctx context.Context, u *url.URL) (T, error)

// Registry maps schemes to openers. It is safe for concurrent use.
type Registry[T any] struct {
	kind, plain string
	mu          sync.RWMutex
	openers     map[string]Opener[T]
}

// New makes a registry of a kind of thing. plain is the scheme of names without
// one, which are paths.
func New[T any](kind, plain string) *Registry[T] {
	return &Registry[T]{kind: kind, plain: plain, openers: map[string]Opener[T]{}}
}

// Register registers the opener of a scheme. It panics if the scheme is already
// registered.
func (r *Registry[T]) Register(scheme string, open Opener[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.openers[scheme]; taken {
		panic(r.kind + ": scheme " + scheme + " registered twice")
	}
	r.openers[scheme] = open
}

// Schemes returns the registered schemes, sorted.
func (r *Registry[T]) Schemes() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	schemes := make([]string, 0, len(r.openers))
	for s := range r.openers {
		schemes = append(schemes, s)
	}
	slices.Sort(schemes)
	return schemes
}

// Open opens the thing at raw, a path or URL. Its error matches
// fence.ErrInvalid if raw is malformed or its scheme is not registered.
func (r *Registry[T]) Open(ctx context.Context, raw string) (T, error) {
	u, err := r.Parse(raw)
	if err != nil {
		var none T
		return none, err
	}
	return r.OpenURL(ctx, u)
}

// OpenURL opens the thing at a URL.
func (r *Registry[T]) OpenURL(ctx context.Context, u *url.URL) (T, error) {
	r.mu.RLock()
	open := r.openers[u.Scheme]
	r.mu.RUnlock()
	if open == nil {
		var none T
		return none, fmt.Errorf("%w %s %q: unknown scheme %q; %sknown are %s", fence.ErrInvalid, r.kind,
			Redact(u.String()), u.Scheme, howToGet(r.kind, u.Scheme), strings.Join(r.Schemes(), ", "))
	}
	return open(ctx, u)
}

// leftOut has what to say of backends that a program was built without.
var leftOut = map[string]string{}

// LeaveOut notes that a program was built without one of Croft's own backends.
// Open then gives this advice, instead of the package to import. Call it from
// init.
func LeaveOut(backend, advice string) { leftOut[backend] = advice }

// howToGet says what a program needs to open a kind of thing with a scheme of
// Croft's own backends. It is empty if none of them can.
func howToGet(kind, scheme string) string {
	backend := map[string]string{
		"dir": "dir", "file": "file", "sqlite": "sqlite", "postgres": "postgres", "postgresql": "postgres",
		"redis": "redis", "rediss": "redis", "etcd": "etcd", "etcds": "etcd", "s3": "s3", "gs": "gcs", "mem": "mem",
	}[scheme]
	if backend == "" || kind == "ledger" && backend != "sqlite" && backend != "postgres" {
		return ""
	}
	if advice := leftOut[backend]; advice != "" {
		return advice + "; "
	}
	return fmt.Sprintf("import _ \"github.com/croft-dev/croft/backend/%s\" to use it; ", backend)
}

// reason says why a URL cannot be parsed. It says nothing if that could quote a
// password.
func reason(raw string, err error) string {
	var failed *url.Error
	if strings.Contains(raw, "@") || !errors.As(err, &failed) {
		return ""
	}
	return fmt.Sprintf(" (%v)", failed.Err)
}

// isURL tells a URL from a path. A path may contain "://" too, but only after a
// slash.
func isURL(raw string) bool {
	scheme, _, found := strings.Cut(raw, "://")
	return found && !strings.Contains(scheme, "/")
}

// schemes matches the scheme of a URL. One letter is a drive of Windows.
var schemes = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+):`)

// SchemeOf returns the word before the first colon of a name, if it can be a
// scheme, and "" otherwise.
func SchemeOf(raw string) string {
	if found := schemes.FindStringSubmatch(raw); found != nil {
		return found[1]
	}
	return ""
}

// lacksSlashes refuses a name that begins with a scheme and a colon, but no
// slashes. It is meant as a URL. As the path of a directory it would be
// created, so there any word counts as a scheme. Files may have colons in their
// names: there a registered scheme counts.
func (r *Registry[T]) lacksSlashes(raw string) error {
	scheme := SchemeOf(raw)
	if scheme == "" || isURL(raw) {
		return nil
	}
	r.mu.RLock()
	known := r.openers[scheme] != nil
	r.mu.RUnlock()
	switch {
	case known:
		return fmt.Errorf("%w %s: %q lacks its two slashes; write %s://…, or ./%s:… if it is a path",
			fence.ErrInvalid, r.kind, scheme+":", scheme, scheme)
	case r.plain == "dir":
		return fmt.Errorf("%w %s: unknown scheme %q; %sknown are %s; write ./%s:… if it is a path",
			fence.ErrInvalid, r.kind, scheme, howToGet(r.kind, scheme), strings.Join(r.Schemes(), ", "), scheme)
	}
	return nil
}

// Parse parses raw as Open does. A path becomes a URL of the plain scheme.
func (r *Registry[T]) Parse(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, fmt.Errorf("%w %s: it is empty; give a path or a URL", fence.ErrInvalid, r.kind)
	}
	if strings.ContainsRune(raw, 0) {
		return nil, fmt.Errorf("%w %s %q: it has a NUL byte", fence.ErrInvalid, r.kind, Redact(raw))
	}
	if err := r.lacksSlashes(raw); err != nil {
		return nil, err
	}
	if !isURL(raw) {
		return &url.URL{Scheme: r.plain, Path: raw}, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w %s URL %q: it cannot be read%s; "+
			"write scheme://host/path, with special characters percent-encoded",
			fence.ErrInvalid, r.kind, Redact(raw), reason(raw, err))
	}
	return u, nil
}
