package gcs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

const (
	chunk = 8 << 20
	// besideSuffix ends the names of uploads that do not count yet. A lifecycle
	// rule can use it.
	besideSuffix = ".croft-upload"
	// LeftoverAge is the age at which a sweep takes an upload for abandoned, if
	// it has not been put in place.
	LeftoverAge = 24 * time.Hour
)

// uploadPrefix returns the beginning of the names of uploads to this object.
func (g *Guard) uploadPrefix() string { return g.object + ".croft/" }

// uploadName names an object for one upload.
func (g *Guard) uploadName() string { return g.uploadPrefix() + objects.NewNonce() + besideSuffix }

// writeLong streams content to an object beside, in a resumable upload. Then
// the service copies it in place, on the same conditions as any write. So the
// guard decides after everything was read, and can decide again if another
// write comes between.
//
// An interrupted upload leaves nothing. A complete upload that is not put in
// place leaves an object that does not count. The next long write, Sweep, or a
// lifecycle rule removes it.
func (g *Guard) writeLong(ctx context.Context, stamp fence.Stamp, head []byte, rest io.Reader) (guard.Receipt, error) {
	now, err := g.look(ctx) // so that a stale owner is refused before it sends everything
	if err != nil {
		return guard.Receipt{}, err
	}
	if _, err := now.mark.Admit(stamp); err != nil {
		return guard.Receipt{}, err
	}
	from := g.uploadName()
	staged, err := g.stage(ctx, from, io.MultiReader(bytes.NewReader(head), rest))
	if err != nil {
		return guard.Receipt{}, err
	}
	defer g.tidy(ctx, from)
	send := func(ctx context.Context, s state, meta map[string]string) error {
		o := s.carry(g.contentType, meta, head)
		// A copy must have a content type.
		o.ContentType = cmp.Or(o.ContentType, staged.ContentType, "application/octet-stream")
		err := g.bucket.copy(ctx, from, staged.Generation, g.object, o, s.conditions())
		if judge(err) == missing {
			return fmt.Errorf("%w: %s", errUploadGone, from)
		}
		return err
	}
	return g.write(ctx, stamp, int64(staged.Size), send)
}

// errUploadGone: somebody has removed an upload before it was put in place.
var errUploadGone = errors.New("the upload was removed before it was put in place, by a lifecycle rule or a sweep;" +
	" write again")

// stage uploads content to an object that does not count yet.
func (g *Guard) stage(ctx context.Context, to string, r io.Reader) (*storage.Object, error) {
	uploading, abandon := context.WithCancel(ctx)
	source := &sourceReader{r: r}
	made, err := wait.For(ctx, func() (*storage.Object, error) {
		defer abandon() // an unfinished upload ends with its context, and makes no object
		made, err := g.bucket.stream(uploading, &storage.Object{Name: to, ContentType: g.contentType}, source, g.chunk)
		if source.err != nil {
			return nil, &brokenSource{source.err}
		}
		return made, err
	})
	var broken *brokenSource
	switch {
	case err == nil:
		return made, nil
	case errors.As(err, &broken):
		return nil, broken.err
	case ctx.Err() != nil:
		abandon() // the source may hang for ever
		return nil, wait.Ended(ctx)
	}
	return nil, store.Unknown(g.bucket.explain(ctx, rightCreate, err))
}

// brokenSource marks an error of the source, to tell it from errors of the
// service.
type brokenSource struct{ err error }

func (e *brokenSource) Error() string { return e.err.Error() }

// sourceReader remembers the error of a reader.
type sourceReader struct {
	r   io.Reader
	err error
}

func (n *sourceReader) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}

// tidy removes a finished upload, and old ones of others.
func (g *Guard) tidy(ctx context.Context, mine string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = g.bucket.delete(ctx, mine, nil)
	_, _ = g.Sweep(ctx)
}

// Sweep removes uploads to this object that are older than [LeftoverAge] and
// were not put in place. Dead writers have left them. It returns how many.
func (g *Guard) Sweep(ctx context.Context) (removed int, err error) {
	if removed, err = g.bucket.removeOld(ctx, g.uploadPrefix(), besideSuffix); err != nil {
		err = store.Unknown(err)
	}
	return removed, err
}
