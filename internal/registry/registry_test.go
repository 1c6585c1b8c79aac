package registry_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/registry"
)

// opened returns the URL that it was opened with.
func opened(_ context.Context, u *url.URL) (*url.URL, error) { return u, nil }

func doors() *registry.Registry[*url.URL] {
	r := registry.New[*url.URL]("door", "dir")
	r.Register("redis", opened)
	r.Register("dir", opened)
	return r
}

// TestAPlainPathIsThePlainScheme: a name without a scheme is a path, as it is
// written.
func TestAPlainPathIsThePlainScheme(t *testing.T) {
	for _, path := range []string{"/var/lib/croft", "relative/a", "./x", "~/x", "a b?c#d%zz", "C:\\x", "./host:6379", "a b:c", "/odd/a://b", "é"} {
		u, err := doors().Open(t.Context(), path)
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if u.Scheme != "dir" || u.Path != path || u.Host != "" || u.RawQuery != "" || u.Fragment != "" {
			t.Errorf("%q was opened as %#v, want the path unchanged", path, u)
		}
	}
}

// TestAFileMayHaveAColon: opening a guard makes nothing, and files are named
// after times.
func TestAFileMayHaveAColon(t *testing.T) {
	r := registry.New[*url.URL]("target", "file")
	r.Register("file", opened)
	if u, err := r.Open(t.Context(), "report:12.json"); err != nil || u.Path != "report:12.json" {
		t.Errorf("it was opened as %v, %v", u, err)
	}
}

// TestASchemeFindsItsOpener: and the opener gets the whole URL.
func TestASchemeFindsItsOpener(t *testing.T) {
	for _, raw := range []string{"redis://bob:pw@h:1/2?a=b#c", "REDIS://bob:pw@h:1/2?a=b#c"} {
		u, err := doors().Open(t.Context(), raw)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if u.String() != "redis://bob:pw@h:1/2?a=b#c" {
			t.Errorf("%q was opened as %s", raw, u)
		}
	}
}

// TestAnOpenersErrorIsPassedOn: the registry returns it unchanged.
func TestAnOpenersErrorIsPassedOn(t *testing.T) {
	broken := errors.New("broken")
	r := registry.New[int]("door", "dir")
	r.Register("x", func(context.Context, *url.URL) (int, error) { return 0, broken })
	if _, err := r.Open(t.Context(), "x://"); err != broken { //nolint:errorlint // the very error is promised
		t.Errorf("got %v, want the opener's own error", err)
	}
}

// TestABadURLSaysWhatToDo: the errors match ErrInvalid, name the kind, say what
// to do, and contain no secrets.
func TestABadURLSaysWhatToDo(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                 "invalid door: it is empty; give a path or a URL",
		"a\x00b":                           `invalid door "a\x00b": it has a NUL byte`,
		"redis://bob:hunter2@h\x00":        `invalid door "redis://xxxxx@h\x00": it has a NUL byte`,
		"gopher://h":                       `invalid door "gopher://h": unknown scheme "gopher"; known are dir, redis`,
		"gopher://bob:hunter2@h":           `invalid door "gopher://bob:xxxxx@h": unknown scheme "gopher"; known are dir, redis`,
		"gopher://h?secret=hunter2":        `invalid door "gopher://h?secret=xxxxx": unknown scheme "gopher"; known are dir, redis`,
		"sqlite:///x.db":                   `invalid door "sqlite:///x.db": unknown scheme "sqlite"; import _ "github.com/croft-dev/croft/backend/sqlite" to use it; known are dir, redis`,
		"redis:h":                          `invalid door: "redis:" lacks its two slashes; write redis://…, or ./redis:… if it is a path`,
		"redis:/bob:hunter2@h":             `invalid door: "redis:" lacks its two slashes; write redis://…, or ./redis:… if it is a path`,
		"memcached:foo":                    `invalid door: unknown scheme "memcached"; known are dir, redis; write ./memcached:… if it is a path`,
		"host:6379":                        `invalid door: unknown scheme "host"; known are dir, redis; write ./host:… if it is a path`,
		"redis://h1, h2":                   `invalid door URL "redis://h1, h2": it cannot be read (invalid character " " in host name); write scheme://host/path, with special characters percent-encoded`,
		"://h":                             `invalid door URL "://h": it cannot be read (missing protocol scheme); write scheme://host/path, with special characters percent-encoded`,
		"redis://bob:hun%ter2@h":           `invalid door URL "redis://xxxxx@h": it cannot be read; write scheme://host/path, with special characters percent-encoded`,
		"redis://h:port/?password=hunter2": `invalid door URL "redis://h:port/?password=xxxxx": it cannot be read (invalid port ":port" after host); write scheme://host/path, with special characters percent-encoded`,
	} {
		_, err := doors().Open(t.Context(), raw)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want it to match ErrInvalid", raw, err)
			continue
		}
		if err.Error() != want {
			t.Errorf("%q:\n\t%v, want\n\t%s", raw, err, want)
		}
		if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: the error gives the password away: %v", raw, err)
		}
	}
}

// TestABackendThatWasLeftOutIsNamed: the advice of the program replaces the
// import.
func TestABackendThatWasLeftOutIsNamed(t *testing.T) {
	registry.LeaveOut("gcs", "ask the builder")
	_, err := doors().Open(t.Context(), "gs://b")
	want := `invalid door "gs://b": unknown scheme "gs"; ask the builder; known are dir, redis`
	if !errors.Is(err, fence.ErrInvalid) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestASchemeRegisteredTwicePanics: two packages would compete for it. The
// first one stays.
func TestASchemeRegisteredTwicePanics(t *testing.T) {
	r := doors()
	func() {
		defer func() {
			if got, want := recover(), "door: scheme redis registered twice"; got != want {
				t.Errorf("panicked with %v, want %q", got, want)
			}
		}()
		r.Register("redis", func(context.Context, *url.URL) (*url.URL, error) { return nil, errors.New("the second") })
	}()
	if _, err := r.Open(t.Context(), "redis://h"); err != nil {
		t.Errorf("after the panic: %v, want the first opener", err)
	}
}

// TestSchemesAreSorted: so that messages and help are the same every time.
func TestSchemesAreSorted(t *testing.T) {
	r := registry.New[int]("door", "dir")
	if got := r.Schemes(); len(got) != 0 {
		t.Errorf("a new registry knows %v", got)
	}
	for _, s := range []string{"s3", "dir", "mem", "gcs"} {
		r.Register(s, nil)
	}
	if got := r.Schemes(); !slices.Equal(got, []string{"dir", "gcs", "mem", "s3"}) {
		t.Errorf("schemes are %v, want them sorted", got)
	}
}

// TestARegistryIsSafeForConcurrentUse: the race detector checks it.
func TestARegistryIsSafeForConcurrentUse(t *testing.T) {
	r := doors()
	var all sync.WaitGroup
	for _, scheme := range []string{"a", "b", "c", "d"} {
		all.Go(func() { r.Register(scheme, opened) })
		all.Go(func() { _, _ = r.Open(t.Context(), "redis://h"); r.Schemes() })
	}
	all.Wait()
	if got := len(r.Schemes()); got != 6 {
		t.Errorf("%d schemes are known, want 6", got)
	}
}
