package s3

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
)

// GuardOptions are the choices in opening a guard. Nil means all defaults.
type GuardOptions struct {
	// NoCopy makes no plain copy for readers that do not know of the guard.
	// That saves half the storage, and two requests for each write. Read with
	// [Guard.Open] then.
	NoCopy bool
	// SkipProbe opens the guard without a trial of conditional writes. If the
	// endpoint does not honour them, nothing is guarded.
	SkipProbe bool
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

// Guard is a guarded object: each admitted write replaces its content.
//
// The manifest KEY.fence says what the content is. [Guard.Open] reads it, the
// old content or the new, and verifies its hash. The object KEY itself is a
// copy for ordinary readers. It is made after the commit, and then the manifest
// is checked again. It may be behind for a moment. If its writer dies in that
// moment, it is behind until the next write. Writes to KEY without the guard
// are not checked, and the next guarded write replaces them.
//
// All methods are safe for concurrent use, also from several processes. After
// an error that matches [store.ErrUnknown] the call may or may not have taken
// effect. With a numbered stamp (Seq) it is safe to write again: a write that
// was made is then refused as repeated.
type Guard struct {
	*bucket
	key    string
	target string
	noCopy bool
	keys   *signed.Keys
	close  func()

	partSize    int
	largestCopy int64
	leftoverAge time.Duration
	sweepOneIn  int // on average one write in so many also sweeps; 0: none
}

var (
	_ guard.Artifact = (*Guard)(nil)
	_ guard.Sweeper  = (*Guard)(nil)
)

const (
	manifestSuffix = ".fence"
	payloadFolder  = ".fence.d/"
)

// OpenGuard opens the guard of an object, which need not exist yet. It does not
// change the caller's client. It first tries whether the bucket honours
// conditional writes, unless the bucket has passed the trial lately. o may be
// nil.
func OpenGuard(ctx context.Context, client *awss3.Client, bucketName, key string, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	if err := checkTarget(bucketName, key); err != nil {
		return nil, err
	}
	g := &Guard{
		bucket: newBucket(client, bucketName), key: key, noCopy: o.NoCopy, partSize: partSize,
		largestCopy: largestCopy, leftoverAge: 24 * time.Hour, sweepOneIn: sweepOneIn, keys: o.Keys,
	}
	g.target = g.url()
	if !o.SkipProbe {
		// Beside the object: a client that may write the object may probably
		// write there, too.
		layout, err := objects.NewLayout(path.Join(path.Dir(key), ".croft"))
		if err != nil {
			return nil, err
		}
		if err := g.check(ctx, layout); err != nil {
			return nil, unknown(err)
		}
	}
	return g, nil
}

// checkTarget returns an error if an object of this name cannot be guarded.
func checkTarget(bucketName, key string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w target: bucket %q, object %.80q: %s", fence.ErrInvalid, bucketName, key, why)
	}
	switch {
	case bucketName == "":
		return bad("the bucket's name is empty")
	case key == "" || strings.HasSuffix(key, "/"):
		return bad("it names no object; write s3://BUCKET/KEY")
	case strings.HasPrefix(key, "/"):
		return bad("it begins with a slash, which some clients change on the way")
	case strings.HasSuffix(key, manifestSuffix) || strings.Contains(key, payloadFolder):
		return bad("names with " + manifestSuffix + " belong to the guards of other objects")
	}
	_, err := objects.NewLayout(key)
	return err
}

// url returns the URL under which others open the same guard.
func (g *Guard) url() string {
	query := url.Values{}
	options := g.client.Options()
	if endpoint := aws.ToString(options.BaseEndpoint); endpoint != "" {
		query.Set("endpoint", endpoint)
		if !options.UsePathStyle {
			query.Set("path_style", "false")
		}
	}
	if options.Region != "" {
		query.Set("region", options.Region)
	}
	if g.noCopy {
		query.Set("copy", "off")
	}
	return (&url.URL{Scheme: "s3", Host: g.name, Path: "/" + g.key, RawQuery: query.Encode()}).String()
}

func init() { guard.Register("s3", openGuardURL) }

// openGuardURL opens s3://bucket/key with a client of its own.
func openGuardURL(ctx context.Context, u *url.URL) (guard.Guard, error) {
	a, err := parse(u, "target", "copy")
	if err != nil {
		return nil, err
	}
	o := &GuardOptions{SkipProbe: a.skipProbe || guard.IsNamed(ctx)}
	switch value := u.Query().Get("copy"); value {
	case "", "on":
	case "off":
		o.NoCopy = true
	default:
		return nil, fmt.Errorf("%w target %q: copy is on or off", fence.ErrInvalid, store.Redact(u.String()))
	}
	if err := checkTarget(a.bucket, a.path); err != nil {
		return nil, err
	}
	client, closeIdle, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	g, err := OpenGuard(ctx, client, a.bucket, a.path, o)
	if err != nil {
		closeIdle()
		return nil, err
	}
	g.close, g.target = closeIdle, u.String()
	return g, nil
}

// Target returns a URL under which others open the same guard.
func (g *Guard) Target() string { return g.target }

// Close closes connections if the guard was opened from a URL.
func (g *Guard) Close() error {
	if g.close != nil {
		g.close()
	}
	return nil
}

func (g *Guard) manifestName() string { return g.key + manifestSuffix }

// Mark reads the mark: one request.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	if ctx.Err() != nil {
		return fence.Mark{}, store.Unknown(context.Cause(ctx))
	}
	now, err := g.read(ctx)
	if err != nil {
		return fence.Mark{}, unknown(err)
	}
	return now.Mark, nil
}

// Rekeyed tells of the last Rekey or Reset. It is zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	now, err := g.read(ctx)
	if err != nil {
		return guard.Rekeyed{}, unknown(err)
	}
	if now.manifest.Rekeyed == nil {
		return guard.Rekeyed{}, nil
	}
	return *now.manifest.Rekeyed, nil
}

// Counts tells how many writes were admitted, by the writers' count in the
// manifest.
func (g *Guard) Counts(ctx context.Context) (guard.Counts, error) {
	now, err := g.read(ctx)
	if err != nil {
		return guard.Counts{}, unknown(err)
	}
	return guard.Counts{Writes: now.Writes, Changed: now.Changed}, nil
}

// Raise advances the mark without writing content: two requests. The object
// need not exist.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	return g.change(ctx, func(now seen) (manifest, error) {
		next := now.manifest
		var err error
		next.Mark, err = now.Mark.Raise(stamp)
		return next, err
	})
}

// Rekey moves the object to another key. The manifest keeps the actor, the time
// and the note until the next Rekey.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark whose token was made up. The manifest keeps the
// actor, as for Rekey.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as law says, and keeps the actor and the note.
func (g *Guard) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (fence.Mark, error) {
	var made guard.Rekeyed // as this call last tried to write it
	return g.change(ctx, func(now seen) (manifest, error) {
		next := now.manifest
		// The reply was lost, and another change has followed. Moving the mark
		// again would shut out the owner that has come since.
		if next.Rekeyed != nil && *next.Rekeyed == made {
			return next, nil
		}
		next.Rekeyed = &guard.Rekeyed{From: now.Mark.Key, Actor: actor, Note: note, At: now.date}
		made = *next.Rekeyed
		var err error
		next.Mark, err = law(now.Mark)
		return next, err
	})
}
