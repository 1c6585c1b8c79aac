package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// GuardOptions are the choices in opening a guard. Nil means all defaults.
type GuardOptions struct {
	// Connection says how to reach the bucket.
	Connection Connection
	// ContentType is the content type of the object. The default is what the
	// object has, or what its first bytes look like.
	ContentType string
	// InMemory is the longest content, in bytes, that is sent in one request.
	// The default is 8 MiB. Longer content is streamed to an object beside.
	// When it is complete, the service copies it in place.
	InMemory int
	// SkipProbe opens the guard without a trial of the conditions that a guard
	// needs. The trial is made only at endpoints other than Google's own.
	SkipProbe bool
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys

	patience time.Duration // replaces a second, in tests
	chunk    int           // replaces 8 MiB, in tests
}

const defaultInMemory = 8 << 20

// Guard is an object that checks writes as they are made. Its mark is in its
// own metadata. Every change is conditional on the generation and the
// metageneration under which the mark was read.
//
// Raising the mark of a missing object creates one without content. Readers
// that do not know of the guard see it as empty. The mark is lost if the object
// is deleted or replaced without the guard. So allow that only to the writers'
// accounts, and let those use guards.
//
// All methods are safe for concurrent use, also from several processes. After
// an error that matches [store.ErrUnknown] the call may or may not have taken
// effect. With a numbered stamp (Seq) it is safe to write again: a write that
// was made is then refused as repeated.
type Guard struct {
	bucket      *bucket
	object      string
	target      string
	contentType string
	inMemory    int
	keys        *signed.Keys
	chunk       int // the size of the pieces of longer content
}

var (
	_ guard.Artifact = (*Guard)(nil)
	_ guard.Sweeper  = (*Guard)(nil)
)

// OpenGuard opens the guard of an object, which need not exist. At an endpoint
// other than Google's own it first tries, once in a process, whether the
// conditions that a guard needs are honoured. If not, the error is an
// [*IgnoredError]. o may be nil.
func OpenGuard(ctx context.Context, bucketName, object string, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	if err := checkObject(object); err != nil {
		return nil, err
	}
	b, err := dial(ctx, bucketName, &o.Connection)
	if err != nil {
		return nil, err
	}
	if o.patience > 0 {
		b.patience = o.patience
	}
	g := &Guard{
		bucket: b, object: object, contentType: o.ContentType, inMemory: o.InMemory, chunk: cmp.Or(o.chunk, chunk),
		keys: o.Keys,
	}
	g.target = targetOf(bucketName, object, &o.Connection)
	if g.inMemory <= 0 {
		g.inMemory = defaultInMemory
	}
	if !o.SkipProbe && !strings.HasPrefix(b.address, google+"/") {
		err := b.once("guards", func() error {
			name := g.uploadName()
			if err := b.writesOnCondition(ctx, name); err != nil {
				return err
			}
			return b.changesOnCondition(ctx, name)
		})
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

// checkObject refuses names that the service refuses, and names with another
// meaning.
func checkObject(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w target: object %.80q: %s; write gs://BUCKET/OBJECT", fence.ErrInvalid, name, why)
	}
	switch {
	case name == "":
		return bad("it is empty")
	case len(name) > 900: // of 1,024; uploads beside need the rest
		return bad("it is longer than 900 bytes")
	case !utf8.ValidString(name) || strings.ContainsAny(name, "\r\n\x00"):
		return bad("it is not UTF-8 on one line")
	case strings.HasSuffix(name, "/"):
		return bad("it ends with a slash, as a folder does")
	case strings.HasSuffix(name, besideSuffix):
		return bad("names that end like this are of uploads on their way, which sweeps remove")
	case name == "." || name == "..":
		return bad("it is no name")
	}
	return nil
}

func init() { guard.Register("gs", openGuardURL) }

// openGuardURL opens the guard of gs://bucket/object.
func openGuardURL(ctx context.Context, u *url.URL) (guard.Guard, error) {
	o := &GuardOptions{}
	why := o.Connection.read(u, &o.SkipProbe, func(name, _ string) string { return unknownParameter(name) })
	if why != "" {
		return nil, fmt.Errorf("%w target %q: %s; write gs://BUCKET/OBJECT,"+
			" with ?endpoint=, project= or probe=false if need be, and # as %%23",
			fence.ErrInvalid, store.Redact(u.String()), why)
	}
	o.SkipProbe = o.SkipProbe || guard.IsNamed(ctx)
	g, err := OpenGuard(ctx, u.Host, strings.TrimPrefix(u.Path, "/"), o)
	if err != nil {
		return nil, err
	}
	if target, _, _ := strings.Cut(g.target, "?"); u.RawQuery != "" {
		g.target = target + "?" + u.RawQuery // the query as it was given
	}
	return g, nil
}

// targetOf returns the URL of an object. It includes the endpoint and the
// project if they are not the defaults.
func targetOf(bucketName, object string, c *Connection) string {
	query := url.Values{}
	if c.Endpoint != "" {
		query.Set("endpoint", c.Endpoint)
	}
	if c.Project != "" {
		query.Set("project", c.Project)
	}
	return (&url.URL{Scheme: "gs", Host: bucketName, Path: "/" + object, RawQuery: query.Encode()}).String()
}

// Target returns a URL under which others open the same guard.
func (g *Guard) Target() string { return g.target }

// Close does nothing. Connections are shared, and close by themselves when they
// are idle.
func (g *Guard) Close() error { return nil }

// Mark reads the mark: one request.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	s, err := g.look(ctx)
	return s.mark, err
}

// Rekeyed tells of the last Rekey or Reset. It is zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	s, err := g.look(ctx)
	if err != nil || s.rekeyed == nil {
		return guard.Rekeyed{}, err
	}
	return *s.rekeyed, nil
}

// Counts tells how many writes were admitted.
func (g *Guard) Counts(ctx context.Context) (guard.Counts, error) {
	s, err := g.look(ctx)
	if err != nil || s.mark.IsZero() {
		return guard.Counts{}, err
	}
	changed, _ := time.Parse(time.RFC3339, s.attrs.Updated) // zero if the service does not say
	return guard.Counts{Writes: s.writes(), Changed: changed}, nil
}

// ErrMarkDamaged is matched by the error about a mark that no guard has
// written. The guard then admits nothing.
var ErrMarkDamaged = errors.New("the mark is damaged")
