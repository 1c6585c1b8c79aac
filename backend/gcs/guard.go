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
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// GuardOptions are the choices in opening a guard. Nil means all defaults.
type GuardOptions struct {
	// Connection is how the bucket is reached.
	Connection Connection
	// ContentType is that of the object's content. Default: what the object has, or what its first bytes look like.
	ContentType string
	// InMemory is how long a content may be, in bytes, to be sent in one request; default 8 MiB. A longer one is streamed to an object beside, and copied in place by the service when all of it is there.
	InMemory int
	// SkipProbe leaves out the trial of whether an endpoint that is not Google's own honours the conditions that a guard needs.
	SkipProbe bool

	patience time.Duration // in place of a second
	chunk    int           // in place of 8 MiB
}

const defaultInMemory = 8 << 20

// Guard is an object whose writes are checked where they are made. Its mark is in its own metadata, and every change is made on condition of the generation and the
// metageneration under which the mark was read.
//
// A raise of an object that is not there yet makes one without content: empty to those who read it past the guard. The mark goes when the object is deleted or replaced past the guard: let only the
// writers' accounts do that, and only through guards.
//
// All methods are safe for concurrent use, also from several processes. An error that matches [store.ErrUnknown] leaves open whether the call took effect; with a numbered stamp (Seq) it is safe to
// write again, a write that has been made is then refused as repeated.
type Guard struct {
	bucket      *bucket
	object      string
	target      string
	contentType string
	inMemory    int
	chunk       int // what is sent at a time of a longer content
}

var (
	_ guard.Artifact = (*Guard)(nil)
	_ guard.Sweeper  = (*Guard)(nil)
)

// OpenGuard opens the guard of an object, which need not exist. At an endpoint that is not Google's own it tries first, once in a process, whether the conditions are honoured that
// a guard needs, and refuses one that does not with an [*IgnoredError]. o may be nil.
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
	g := &Guard{bucket: b, object: object, contentType: o.ContentType, inMemory: o.InMemory, chunk: cmp.Or(o.chunk, chunk)}
	g.target = targetOf(bucketName, object, &o.Connection)
	if g.inMemory <= 0 {
		g.inMemory = defaultInMemory
	}
	if !o.SkipProbe && !strings.HasPrefix(b.place, google+"/") {
		err := b.once("guards", func() error {
			name := g.beside()
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

// checkObject refuses what the service refuses as a name, and what it would take for something else.
func checkObject(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w target: object %.80q: %s; write gs://BUCKET/OBJECT", fence.ErrInvalid, name, why)
	}
	switch {
	case name == "":
		return bad("it is empty")
	case len(name) > 900: // of 1,024, to leave room for what stands beside it
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
	if why := o.Connection.read(u, &o.SkipProbe, func(name, _ string) string { return unknownParameter(name) }); why != "" {
		return nil, fmt.Errorf("%w target %q: %s; write gs://BUCKET/OBJECT, with ?endpoint=, project= or probe=false if need be, and # as %%23", fence.ErrInvalid, store.Redact(u.String()), why)
	}
	o.SkipProbe = o.SkipProbe || guard.IsNamed(ctx)
	g, err := OpenGuard(ctx, u.Host, strings.TrimPrefix(u.Path, "/"), o)
	if err != nil {
		return nil, err
	}
	if target, _, _ := strings.Cut(g.target, "?"); u.RawQuery != "" {
		g.target = target + "?" + u.RawQuery // as it was written
	}
	return g, nil
}

// targetOf is the URL of an object: with the way to it, if that is not what everybody takes.
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

// Target is a URL under which others open the same guard.
func (g *Guard) Target() string { return g.target }

// Close has nothing to let go of: connections are shared, and end by themselves when nobody uses them.
func (g *Guard) Close() error { return nil }

// Mark reads the mark: one request.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	s, err := g.look(ctx)
	return s.mark, err
}

// Rekeyed is what a guard keeps of its last Rekey.
type Rekeyed struct {
	From  string    `json:"from"`
	Actor string    `json:"actor"`
	Note  string    `json:"note"`
	At    time.Time `json:"at"` // by the service's clock
}

// Rekeyed tells of the last Rekey; zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (Rekeyed, error) {
	s, err := g.look(ctx)
	if err != nil || s.rekeyed == nil {
		return Rekeyed{}, err
	}
	return *s.rekeyed, nil
}

// ErrMarkDamaged is matched by the error about a mark that the guard has not written. Nothing is admitted then.
var ErrMarkDamaged = errors.New("the mark is damaged")
