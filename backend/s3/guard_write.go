package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// ErrCopyBehind is matched when a write has been committed, as Guard.Open
// shows, but the plain copy could not be made. Write again, or call Refresh.
var ErrCopyBehind = errors.New("the write is committed, but its plain copy could not be made")

// Write reads all of r, and then replaces the content if the stamp is admitted.
// Large content is uploaded in parts while it is read. Three parts of at least
// 8 MiB are in memory at a time.
//
// If the stamp is refused already, Write says so before it reads anything. An
// aborted write leaves nothing that counts. If it cannot remove its payload,
// [Guard.Sweep] does so later.
func (g *Guard) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	if ctx.Err() != nil {
		return guard.Receipt{}, store.Unknown(context.Cause(ctx))
	}
	now, err := g.read(ctx)
	if err != nil {
		return guard.Receipt{}, unknown(err)
	}
	if _, err := now.Mark.Admit(stamp); err != nil {
		return guard.Receipt{}, err
	}
	began := now.date
	content, err := g.upload(ctx, stamp, r)
	if err != nil {
		return guard.Receipt{}, err
	}
	receipt, replaced, err := g.commit(ctx, stamp, now, content, began)
	if err != nil {
		// If the outcome is unknown, the manifest may name the payload. If it
		// does not, a sweep removes it.
		if !errors.Is(err, store.ErrUnknown) {
			g.forget(content.Name)
		}
		return receipt, err
	}
	if !g.noCopy {
		if err := g.refresh(ctx, content); err != nil {
			return receipt, fmt.Errorf("%w: %w", ErrCopyBehind, err)
		}
	}
	if replaced != nil {
		g.forget(replaced.Name)
	}
	if g.sweepOneIn > 0 && rand.IntN(g.sweepOneIn) == 0 {
		_, _ = g.Sweep(ctx) // errors are for callers of Sweep
	}
	return receipt, nil
}

// sweepOneIn is how many writes there are for one sweep, on average.
const sweepOneIn = 32

// commit makes the manifest name content, if the stamp is admitted. It returns
// the payload that the manifest named before.
func (g *Guard) commit(
	ctx context.Context, stamp fence.Stamp, now seen, content *payload, began time.Time,
) (guard.Receipt, *payload, error) {
	adopted := false
	for {
		if ctx.Err() != nil {
			return guard.Receipt{}, nil, store.Unknown(context.Cause(ctx))
		}
		// A sweep removes old payloads that no manifest names. It replaces the
		// manifest first. So either this check notices, or the swap fails.
		if age := now.date.Sub(began); age > g.leftoverAge/2 {
			return guard.Receipt{}, nil, fmt.Errorf("the write took %s,"+
				" after which its upload may have been swept away; write again, and faster", age)
		}
		next := now.manifest
		next.Payload = content
		next.Writes++
		var err error
		if next.Mark, err = now.Mark.Admit(stamp); err != nil {
			return guard.Receipt{}, nil, err
		}
		if now.Payload == nil && !adopted { // the first guarded write
			if adopted, err = g.exists(ctx, g.key); err != nil {
				return guard.Receipt{}, nil, unknown(err)
			}
		}
		_, err = g.replace(ctx, now, next)
		if err == nil {
			return guard.Receipt{Mark: next.Mark, Bytes: content.Size, Adopted: adopted}, now.Payload, nil
		}
		if !errors.Is(err, errOvertaken) {
			return guard.Receipt{}, nil, unknown(err)
		}
		doubt := errors.Is(err, errEclipsed) // it may have been committed before another write
		if now, err = g.read(ctx); err != nil {
			return guard.Receipt{}, nil, unknown(err)
		}
		// It was committed, and the fence has been raised since.
		if now.Payload != nil && now.Payload.Name == content.Name {
			return guard.Receipt{Mark: now.Mark, Bytes: content.Size, Adopted: adopted}, nil, nil
		}
		// The write that followed has then removed the payload, so no manifest
		// may name it again.
		if doubt {
			return guard.Receipt{}, nil, store.Unknown(followed(now.Mark, stamp))
		}
	}
}

// followed is the error if a later write hides the outcome of this one. It does
// not match a refusal, even if the write would be refused now: a refusal
// promises that nothing was written.
func followed(newest fence.Mark, stamp fence.Stamp) error {
	const lost = "the reply to the write was lost, and another has followed"
	if _, err := newest.Admit(stamp); err != nil {
		return fmt.Errorf("%s; if it was not made, it is refused by now: %s", lost, err.Error())
	}
	return errors.New(lost + "; write again if it is to count")
}

func (b *bucket) exists(ctx context.Context, name string) (bool, error) {
	_, err := b.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &b.name, Key: &name})
	if err == nil {
		return true, nil
	}
	if faultOf(err) == absent {
		return false, nil
	}
	return false, b.explain(err)
}

// Refresh makes the plain copy equal to the content. It is for a copy whose
// writer died before making it.
func (g *Guard) Refresh(ctx context.Context) error {
	now, err := g.read(ctx)
	if err == nil && now.Payload != nil {
		err = g.refresh(ctx, now.Payload)
	}
	if err != nil {
		return unknown(err)
	}
	return nil
}

// refresh copies a payload to the plain key, and then reads the manifest again.
// If the manifest names another payload by now, this copy may have overwritten
// that one's, and refresh copies again. So the last copy to arrive is always
// followed by a look that finds nothing newer.
func (g *Guard) refresh(ctx context.Context, content *payload) error {
	for {
		err := g.copyTo(ctx, content, g.key)
		if err != nil && faultOf(err) != absent { // absent: another write has replaced and removed it
			return g.explain(err)
		}
		now, readErr := g.read(ctx)
		switch {
		case readErr != nil:
			return readErr
		case now.Payload == nil:
			return fmt.Errorf("%w: %s has been replaced by one without content", ErrManifestDamaged, g.manifestName())
		case now.Payload.Name != content.Name:
			content = now.Payload
		case err != nil:
			return fmt.Errorf("%w: %s names %s, which is gone; write again",
				ErrManifestDamaged, g.manifestName(), content.Name)
		default:
			return nil
		}
	}
}

// Reader is the content of a guarded object at one moment. If the hash is not
// the committed one, the last Read returns an error that matches
// ErrContentDamaged instead of io.EOF.
type Reader = guard.Content

// open reads a whole object with one GET.
func (g *Guard) open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	out, err := g.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &g.name, Key: &name})
	if err != nil {
		return nil, 0, err
	}
	return out.Body, aws.ToInt64(out.ContentLength), nil
}
